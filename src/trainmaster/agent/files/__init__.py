"""Files of a job, by name and by content: globs, durable copies with their digests, JSON read without `json`.

Every path here may come from a spec or a program: all of it takes linear time.
"""
