"""What a kubelet and a device plugin say to each other (v1beta1), and who holds what (v1).

Messages are described here and built when this is imported: nothing is generated, and a field
that is not used here is passed over.  Numbers and names are those of the kubelet's public API.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_TYPES: Final = {
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
}
_MANY: Final = "*"
_MAP: Final = "map"

_PLUGIN: Final = {
    "Empty": {},
    "DevicePluginOptions": {
        "pre_start_required": (1, "bool"),
        "get_preferred_allocation_available": (2, "bool"),
    },
    "RegisterRequest": {
        "version": (1, "string"),
        "endpoint": (2, "string"),
        "resource_name": (3, "string"),
        "options": (4, "DevicePluginOptions"),
    },
    "Device": {"ID": (1, "string"), "health": (2, "string")},
    "ListAndWatchResponse": {"devices": (1, "*Device")},
    "PreStartContainerRequest": {"devicesIDs": (1, "*string")},
    "PreStartContainerResponse": {},
    "ContainerPreferredAllocationRequest": {
        "available_deviceIDs": (1, "*string"),
        "must_include_deviceIDs": (2, "*string"),
        "allocation_size": (3, "int32"),
    },
    "PreferredAllocationRequest": {
        "container_requests": (1, "*ContainerPreferredAllocationRequest")
    },
    "ContainerPreferredAllocationResponse": {"deviceIDs": (1, "*string")},
    "PreferredAllocationResponse": {
        "container_responses": (1, "*ContainerPreferredAllocationResponse")
    },
    "ContainerAllocateRequest": {"devicesIDs": (1, "*string")},
    "AllocateRequest": {"container_requests": (1, "*ContainerAllocateRequest")},
    "Mount": {
        "container_path": (1, "string"),
        "host_path": (2, "string"),
        "read_only": (3, "bool"),
    },
    "DeviceSpec": {
        "container_path": (1, "string"),
        "host_path": (2, "string"),
        "permissions": (3, "string"),
    },
    "ContainerAllocateResponse": {
        "envs": (1, _MAP),
        "mounts": (2, "*Mount"),
        "devices": (3, "*DeviceSpec"),
        "annotations": (4, _MAP),
    },
    "AllocateResponse": {"container_responses": (1, "*ContainerAllocateResponse")},
}

_HOLDERS: Final = {
    "ListPodResourcesRequest": {},
    "ContainerDevices": {"resource_name": (1, "string"), "device_ids": (2, "*string")},
    "ContainerResources": {"name": (1, "string"), "devices": (2, "*ContainerDevices")},
    "PodResources": {
        "name": (1, "string"),
        "namespace": (2, "string"),
        "containers": (3, "*ContainerResources"),
    },
    "ListPodResourcesResponse": {"pod_resources": (1, "*PodResources")},
}

_Described = dict[str, dict[str, tuple[int, str]]]


def _built(package: str, messages: _Described) -> dict[str, Any]:
    """Return classes of messages by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"interlane/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        _describe(file.message_type.add(name=name), package, fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in messages
    }


def _describe(
    into: descriptor_pb2.DescriptorProto, package: str, fields: dict[str, tuple[int, str]]
) -> None:
    for name, (number, kind) in fields.items():
        field = into.field.add(name=name, number=number)
        field.label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        if kind == _MAP:
            kind = f"{_MANY}{_entry(into, name)}"
            package_of = f"{package}.{into.name}"
        else:
            package_of = package
        if kind.startswith(_MANY):
            field.label = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
        bare = kind.removeprefix(_MANY)
        if bare in _TYPES:
            field.type = _TYPES[bare]
        else:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
            field.type_name = f".{package_of}.{bare}"


def _entry(into: descriptor_pb2.DescriptorProto, field: str) -> str:
    """Describe an entry of a map from text to text; return what it is called."""
    name = f"{field.capitalize()}Entry"
    entry = into.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), start=1):
        entry.field.add(
            name=part,
            number=number,
            label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        )
    return name


PLUGIN: Final = _built("v1beta1", _PLUGIN)
"""Messages of the device plugin API."""
HOLDERS: Final = _built("v1", _HOLDERS)
"""Messages by which the kubelet says which pod holds which devices."""

VERSION: Final = "v1beta1"
REGISTER: Final = "/v1beta1.Registration/Register"
SERVICE: Final = "v1beta1.DevicePlugin"
LIST_HOLDERS: Final = "/v1.PodResourcesLister/List"
HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"
