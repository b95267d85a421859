"""The names of images in a registry, in all the spellings that people have for them.

Docker and Apptainer write ``docker://nvcr.io/nvidia/pytorch:24.01-py3``, enroot and Pyxis
``docker://nvcr.io#nvidia/pytorch:24.01-py3``, and people write either for all of them, with
``docker://`` or without. To enroot a name without ``#`` is one of Docker Hub's, whatever stands in
front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_DOCKER = "docker://"
_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_NAME = (
    r"(?:(?P<user>[^@/#\s]+)@(?=[^#]*#))?"
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*(?::\d+)?)#)?"
    r"(?P<path>[A-Za-z0-9][\w.-]*(?::\d+(?=/))?(?:/[\w.-]+)*(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?)"
)
_HOST = r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d+)?|localhost(:\d+)?|[A-Za-z0-9-]+:\d+"
_FILE = r"\.(sif|sqsh|squashfs|img|def|tar|tar\.gz|tgz)$"


@dataclass(frozen=True)
class RegistryName:
    """An image in a registry.

    Attributes:
        user: Who logs in there; "" where the name does not say.
        host: The registry; "" for Docker Hub.
        path: The rest: names, tag and digest.
    """

    user: str
    host: str
    path: str

    @property
    def for_docker(self) -> str:
        """As Docker, podman and Apptainer read it; these have the user from their own login."""
        return _DOCKER + "/".join(filter(None, [self.host, self.path]))

    @property
    def for_enroot(self) -> str:
        """As enroot reads it, and, without ``docker://``, Pyxis."""
        user = f"{self.user}@" if self.user else ""
        host = f"{self.host}#" if self.host else ""
        return f"{_DOCKER}{user}{host}{self.path}"


def read_registry_name(image: str) -> RegistryName | None:
    """Return what an image's name means in a registry; None where it is certainly or likely none.

    Without ``docker://`` and ``#`` a name counts that begins with a registry's host, as
    ``nvcr.io/nvidia/pytorch:24.01-py3`` does; ``ubuntu:24.04`` alone may be a file's name.
    """
    is_said = image.startswith(_DOCKER)
    found = re.fullmatch(_NAME, image.removeprefix(_DOCKER))
    if found is None or (not is_said and re.search(_FILE, image)):
        return None
    user, host, path = found["user"] or "", found["host"] or "", found["path"]
    if not host:
        first, slash, rest = path.partition("/")
        if slash and re.fullmatch(_HOST, first):
            host, path = first, rest
        elif not is_said:
            return None
    return RegistryName(user, "" if host in _HUB else host, path)
