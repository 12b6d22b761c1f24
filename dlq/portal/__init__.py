"""The tenants' own pages, `/t/<slug>/`: a thin edge above everything else, which nobody imports.

Every page begins at the door: who is logged in, and as what member of that tenant. What a page reads or does it
reads and does with the tenant's scope, so nothing of another tenant can be on it.
"""
