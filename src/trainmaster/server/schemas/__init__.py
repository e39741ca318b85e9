"""Bodies as `/openapi.json` describes them: documentation only.

Nothing is validated or serialized through these models.
"""
