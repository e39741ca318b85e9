"""Which server is used, and what proves it: settings files, this machine's own server, signing in to another machine's.

Another room asks here for a server; nothing here sends requests about jobs.
"""
