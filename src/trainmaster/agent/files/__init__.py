"""Files of a job: glob matching, following logs, durable copies with their digests, and reading JSON without `json`.

Paths may come from a spec or a program, so everything here takes linear time.
"""
