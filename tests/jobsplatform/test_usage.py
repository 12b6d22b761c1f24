"""A command line that cannot be read is told in one line, by every command."""

from __future__ import annotations

import pytest
from django.core.management import get_commands, load_command_class

OURS = sorted(name for name, app in get_commands().items() if app in {"jobqueue", "dlq", "tenants"})


@pytest.mark.parametrize("name", OURS)
def test_a_wrong_argument_is_one_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = load_command_class(get_commands()[name], name)
    command._called_from_command_line = True  # type: ignore[attr-defined]
    with pytest.raises(SystemExit) as end:
        command.create_parser("manage.py", name).parse_args(["--no-such-flag"])
    told = capsys.readouterr().err
    assert (end.value.code, told.count("\n"), told.endswith("(see --help)\n")) == (2, 1, True), told
