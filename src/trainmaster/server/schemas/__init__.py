"""Models of request and response bodies for `/openapi.json`.

They are documentation only: nothing is validated or serialized through them.
"""
