"""Files of a job: glob matching, following logs, durable copies, formats that prove a file whole, reading JSON without `json`.

Paths may come from a spec or a program, so everything here takes linear time.
"""
