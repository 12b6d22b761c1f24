"""What the admin's screens share: lists that never count and page by key, pages of one shard, edits by verbs.

Jobs lie in the millions and on several databases. So a list is one bounded read along an index, newest first;
"older" continues below the last row. Whatever changes something goes through the same verbs as the API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied, ValidationError
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from jobsplatform import database, exporting
from jobsplatform.errors import JobsPlatformError
from jobsplatform.wording import age, describe, span

BEFORE: Final = "before"  # the query parameter that says where a page begins
SHARD: Final = "shard"
PREVIEW: Final = "preview"  # the button that shows what a form would do
ROWS: Final = 50
NOTHING: Final = "–"

M = TypeVar("M", bound=Model)
if TYPE_CHECKING:  # generic for mypy alone
    ModelAdmin = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    ModelAdmin, ModelForm = admin.ModelAdmin, forms.ModelForm

admin.site.site_header = admin.site.site_title = "Jobs Platform"
admin.site.index_title = "Overview"
admin.site.empty_value_display = NOTHING


def actor(request: HttpRequest) -> str:
    """How the audit names who is logged in."""
    return f"user:{request.user.get_username()}"


# Pages by key


def page_below(
    queryset: QuerySet[M], keys: Sequence[str], before: str | None, limit: int
) -> tuple[list[M], str | None]:
    """Up to `limit` rows below a place, largest keys first, and the place where the next page begins.

    Raises IncorrectLookupParameters for a place that is none.
    """
    if before is not None:
        queryset = queryset.filter(_below(queryset.model, keys, before))
    rows = list(queryset.order_by(*(f"-{key}" for key in keys))[: limit + 1])
    if len(rows) <= limit:
        return rows, None
    return rows[:limit], "~".join(_text(getattr(rows[limit - 1], key)) for key in keys)


def _below(model: type[Model], keys: Sequence[str], before: str) -> Q:
    """Rows after a place in descending order. The first condition is one that an index can follow."""
    texts = before.split("~")
    if len(texts) != len(keys):
        raise IncorrectLookupParameters("no place in this list")
    try:
        values = [_field(model, key).to_python(text) for key, text in zip(keys, texts, strict=True)]
    except (ValidationError, ValueError) as error:
        raise IncorrectLookupParameters(error) from error
    if len(keys) == 1:
        return Q(**{f"{keys[0]}__lt": values[0]})
    first, second = keys
    return Q(**{f"{first}__lte": values[0]}) & ~Q(**{first: values[0], f"{second}__gte": values[1]})


def _field(model: type[Model], key: str) -> Any:
    return model._meta.pk if key == "pk" else model._meta.get_field(key)


def _text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


class KeysetChangeList(ChangeList):
    """A list of which one page is read, and nothing counted."""

    model_admin: Any  # a KeysetAdmin
    next_query: str | None = None
    first_query: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_popup:
            self.title = str(capfirst(self.opts.verbose_name_plural))

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        for parameters in (self.params, self.filter_params):
            if BEFORE in parameters:
                del parameters[BEFORE]
        return super().get_queryset(request, exclude_parameters)

    def get_results(self, request: HttpRequest) -> None:
        before = request.GET.get(BEFORE)
        keys = self.model_admin.keyset
        rows, following = page_below(self.queryset, keys, before, self.list_per_page)
        self.model_admin.prepare(rows)
        self.result_list = rows
        self.result_count = self.full_result_count = len(rows)
        self.show_full_result_count, self.show_admin_actions = False, bool(rows)
        self.can_show_all = self.multi_page = False
        self.paginator = self.model_admin.get_paginator(request, rows, self.list_per_page)
        if following is not None:
            self.next_query = self.get_query_string({BEFORE: following})
        if before is not None:
            self.first_query = self.get_query_string()

    def url_for_result(self, result: Any) -> str:
        url: str = self.model_admin.url_of(result) or super().url_for_result(result)
        return url


class KeysetAdmin(ModelAdmin):
    """A list by key. `keyset` is the index that it follows, one or two fields, descending."""

    keyset: ClassVar[tuple[str, ...]] = ("pk",)
    list_per_page = ROWS
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    change_list_template = "admin/keyset_change_list.html"

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList

    def prepare(self, rows: Sequence[Any]) -> None:
        """Fetch what a page's rows show besides their own columns, for all of them at once."""

    def url_of(self, row: Any) -> str | None:
        """Where a row of the list leads; None: to its own page."""
        return None

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is not None:
            self.prepare([found])
        return found

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ReadOnlyAdmin(KeysetAdmin):
    """Rows that only the platform writes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class ShardFilter(admin.SimpleListFilter):
    """Which database a list is read from; absent while there is one."""

    title = "shard"
    parameter_name = SHARD

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        places = places_of(model_admin.model)
        return [(key, title) for key, (title, _) in places.items()] if len(places) > 1 else []

    def choices(self, changelist: Any) -> Any:
        """Without the choice "all": a list is of one database."""
        chosen = self.value() or next(iter(places_of(changelist.model)))
        for key, title in self.lookup_choices:
            query = changelist.get_query_string({SHARD: key})
            yield {"selected": key == chosen, "query_string": query, "display": title}

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.using(alias_asked(request, queryset.model))


def places_of(model: type[Model]) -> dict[str, tuple[str, str]]:
    """Where rows of a model are: key → (title, database alias). The first is the one shown unasked."""
    shards = {str(n): (f"shard {n}", alias) for n, alias in database.aliases().items()}
    if database.placement(model) == database.BOTH and "default" not in database.aliases().values():
        return {"control": ("control", "default"), **shards}
    return shards


def alias_asked(request: HttpRequest, model: type[Model]) -> str:
    """The database that a request names, else the first."""
    places = places_of(model)
    _, alias = places.get(request.GET.get(SHARD, ""), next(iter(places.values())))
    return alias


class ShardAdmin(ReadOnlyAdmin):
    """Rows of one shard at a time."""

    list_filter: ClassVar[Any] = (ShardFilter,)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(alias_asked(request, self.model))

    def url_of(self, row: Any) -> str | None:
        """The row's own page, on its own shard."""
        address = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[quote(row.pk)])
        keys = [key for key, (_, alias) in places_of(self.model).items() if alias == row._state.db]
        return f"{address}?{SHARD}={keys[0]}"


# Edits by verbs


class VerbAdmin(KeysetAdmin):
    """Configuration whose saving is a verb, which has its own transaction; its refusal becomes a message."""

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        # Django's own wrapper is left out: its transaction would hold back the verb's commit until after the
        # shards were told.
        try:
            return self._changeform_view(request, object_id, form_url, extra_context)  # type: ignore[attr-defined]
        except JobsPlatformError as error:
            messages.error(request, describe(error))
            return HttpResponseRedirect(request.get_full_path())

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Verbs save whole rows: nothing is left to save."""

    def each(
        self, request: HttpRequest, queryset: QuerySet[Any], verb: Callable[[Any], None], done: str
    ) -> None:
        """Apply a verb to each chosen row, and say in one message what became of them."""
        refusals = []
        names = []
        for row in queryset.order_by("pk"):
            try:
                verb(row)
                names.append(str(row))
                self.log_change(request, row, f"{done}.")
            except JobsPlatformError as error:
                refusals.append(f"{row}: {describe(error)}")
        if names:
            messages.success(request, f"{done}: {', '.join(names)}.")
        if refusals:
            messages.error(request, " ".join(refusals))


# Pages that ask before they act


class ReasonForm(forms.Form):
    """Why an operator does something."""

    reason = forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), max_length=2_000, required=False)


def ask_and_act(
    request: HttpRequest,
    model_admin: admin.ModelAdmin[Any],
    *,
    obj: Model,
    title: str,
    intro: str,
    form: forms.Form,
    act: Callable[[Mapping[str, Any]], str],
    back: str | Callable[[], str],
    submit: str,
    context: Mapping[str, Any] | None = None,
    template: str = "admin/ask_and_act.html",
) -> HttpResponse:
    """A page with a form; when it is sent, `act` does the work and answers the message.

    Sent by a button called `preview` it is only shown again. What was done is in Django's log of `obj` too, beside the
    audit. `back` is where to go afterwards.
    """
    back_to = back if callable(back) else lambda: back
    if request.method == "POST" and form.is_valid() and PREVIEW not in request.POST:
        try:
            message = act(form.cleaned_data)
            messages.success(request, message)
            if obj.pk is not None:
                model_admin.log_change(request, obj, message)
            return HttpResponseRedirect(back_to())
        except JobsPlatformError as error:
            form.add_error(None, describe(error))
    page = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "original": obj,
        "title": title,
        "intro": intro,
        "form": form,
        "back": back_to(),
        "submit": submit,
        **(context or {}),
    }
    return TemplateResponse(request, template, page)


def streamed(pieces: Iterable[bytes], form: str, name: str) -> StreamingHttpResponse:
    """An export as a file, sent piece by piece as it is read."""
    response = StreamingHttpResponse(pieces, content_type=exporting.FORMATS[form])
    stamp = f"{timezone.now():%Y%m%dT%H%M%SZ}"
    response["Content-Disposition"] = f'attachment; filename="{name}-{stamp}.{form}"'
    return response


def require(request: HttpRequest, permission: str) -> None:
    """Raise PermissionDenied for a user without a permission (`app.verb_model`)."""
    if not request.user.has_perm(permission):
        raise PermissionDenied


def table_page(
    request: HttpRequest,
    model_admin: admin.ModelAdmin[Any],
    model: type[Model],
    keys: Sequence[str],
    columns: Mapping[str, Callable[[Any], object]],
) -> HttpResponse:
    """A list of a model that Django's admin cannot register, because its primary key has several columns."""
    require(request, f"{model._meta.app_label}.view_{model._meta.model_name}")
    queryset = model._default_manager.using(alias_asked(request, model))
    try:
        rows, following = page_below(queryset, keys, request.GET.get(BEFORE), ROWS)
    except IncorrectLookupParameters:
        return HttpResponseRedirect(request.path)
    places = places_of(model)
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model._meta,
        "title": capfirst(model._meta.verbose_name_plural),
        "headers": list(columns),
        "rows": [[cell(row) for cell in columns.values()] for row in rows],
        "before": following,
        "shard": request.GET.get(SHARD, next(iter(places))),
        "places": [(key, title) for key, (title, _) in places.items()] if len(places) > 1 else [],
        "is_first": BEFORE not in request.GET,
    }
    return TemplateResponse(request, "admin/table_page.html", context)


# Cells


def badge(state: str | None) -> SafeString:
    """A state as a word in a colour; the word alone says it too."""
    return format_html('<span class="state state-{}">{}</span>', state or "moving", state or "moving")


def ago(instant: datetime | None) -> SafeString | str:
    """How long ago an instant was; the exact time shows when it is pointed at."""
    if instant is None:
        return NOTHING
    exact = instant.isoformat(sep=" ", timespec="milliseconds")
    return format_html('<time datetime="{}" title="{}">{}</time>', instant.isoformat(), exact, age(instant))


def until(instant: datetime | None) -> SafeString | str:
    """How long it is to an instant, or since."""
    if instant is None:
        return NOTHING
    exact = instant.isoformat(sep=" ", timespec="milliseconds")
    left = (instant - datetime.now(instant.tzinfo)).total_seconds()
    text = f"in {span(left)}" if left >= 0 else f"{span(-left)} ago"
    return format_html('<time datetime="{}" title="{}">{}</time>', instant.isoformat(), exact, text)


def masked(count: int | None, sha256: str | None) -> SafeString | str:
    """Content by its size and hash."""
    if count is None:
        return NOTHING
    return format_html('{} bytes, SHA-256 <code class="hash">{}</code>', f"{count:,}", sha256 or "")
