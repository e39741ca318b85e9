"""The steps of a decision, which share one record (`decision`): `order`, `fit`; for each job in turn (`attempt`) `place` and
`start`, else `make_way`, else `reserve`. `outlook` has the expected ends.
"""
