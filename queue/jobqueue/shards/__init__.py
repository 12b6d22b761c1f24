"""The shards: which one takes which work, how slots move between them, and what operators do with them.

`map` is what each process remembers of control's word; `telling` brings it to the shards, which hold it against every
enqueue; `moving` moves slots with their request keys; `register` has the operators' verbs.
"""
