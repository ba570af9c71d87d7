"""Checks of the settings: whether they can be read, and whether the folders and files that they name can be used."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dyorc.doctor.finding import Finding, Subject, error, ok, warning
