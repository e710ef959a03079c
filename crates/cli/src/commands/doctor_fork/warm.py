"""Opens every source of randomness, and defines what each sandbox is asked after the fork."""

import json
import os
import random
import secrets
import socket
import ssl
import tempfile
import time
import uuid

try:
    import numpy
except ImportError:
    numpy = None

_doctor_seeded = random.Random(7)
_doctor_generator = numpy and numpy.random.default_rng(7)


def _doctor_file(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return None


def _doctor():
    with tempfile.NamedTemporaryFile() as file:
        temporary = os.path.basename(file.name)
    values = {
        "random": random.random().hex(),
        "numpy": numpy and float(numpy.random.random()).hex(),
        "uuid": str(uuid.uuid4()),
        "secrets": secrets.token_hex(8),
        "ssl": ssl.RAND_bytes(8).hex(),
        "urandom": os.urandom(8).hex(),
        "tempfile": temporary,
        "seeded": _doctor_seeded.random().hex(),
        "seeded_numpy": numpy and float(_doctor_generator.random()).hex(),
        "hostname": socket.gethostname(),
        "machine_id": _doctor_file("/etc/machine-id"),
        "boot_id": _doctor_file("/proc/sys/kernel/random/boot_id"),
        "clock": repr(time.time()),
    }
    return json.dumps(values)


for _doctor_draw in range(5):
    _doctor()
