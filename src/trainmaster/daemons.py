"""The life of the two server processes on this machine: start, find, revive, stop.

Standard library only: the command line reads this before anything heavy is loaded. A process is known by pid, start
time and boot id together, never by its number alone. Who starts or stops holds the lock `up`.
"""

import contextlib
import fcntl
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainmaster.errors import ConflictError, OperationError, TrainmasterError, UsageError
from trainmaster.home import Home, write_atomic
from trainmaster.wire.names import ENV_FAILPOINT
from trainmaster.wire.processes import boot_id, own_identity, same_process
