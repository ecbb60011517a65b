"""The same run over tcp with CURVE, while strangers knock: they are counted and nothing changes."""

import json
import secrets
import socket
from pathlib import Path

import pytest
import zmq

from flowgraph.runtime.messages import Stop, encode
from flowgraph.runtime.options import RunOptions
from flowgraph.runtime.progress import Progress, RunStarted
from flowgraph.runtime.shell import run_plan
from flowgraph.runtime.transport.keys import KeyPair, Keyring
from flowgraph.runtime.transport.sockets import Context, make_socket, present_keys
from tests.runs.running import GRAPHS, plan_of, run
