"""The bill of materials that a wheel carries in `.dist-info/sboms/` (PEP 770), in CycloneDX's JSON."""

from __future__ import annotations

import datetime
import tomllib
import uuid

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from tools.locked import NAME, ROOT, needed, runtime

FILE_NAME = f"{NAME}.cdx.json"


def sbom(version: str, epoch_seconds: int) -> str:
    """
    Return the document: the product, and the exact releases it was tested with.

    The same bytes for the same version, time and lock file.

    Args:
        version: of the product.
        epoch_seconds: what counts as the time of the build.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = runtime(project["dependencies"])
    parts = {each.name: _component(each.name, each.version, each.licence) for each in packages.values()}
    product = _component(NAME, version, project["license"], ComponentType.APPLICATION)
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"{product.purl}#{epoch_seconds}"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(epoch_seconds, datetime.UTC)
    bom.metadata.component = product
    bom.components.update(parts.values())
    bom.register_dependency(product, [parts[name] for name in needed(project["dependencies"])])
    for each in packages.values():
        bom.register_dependency(parts[each.name], [parts[name] for name in each.requires])
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _component(name: str, version: str, licence: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    url = PackageURL("pypi", name=name, version=version)
    licences = [LicenseFactory().make_from_string(licence)] if licence else []
    return Component(name=name, version=version, type=kind, purl=url, bom_ref=str(url), licenses=licences)
