"""Missing extras: the sentence that names the extra to install if a command needs a package that is not installed."""

from __future__ import annotations

# Top-level modules of each extra; one that needs others is installed with them.
MODULES = {
    "fast": ("llvmlite", "numba", "numpy", "pyarrow"),
    "spark": ("pandas", "py4j", "pyspark"),
    "lake": ("deltalake", "pyiceberg"),
    "plot": ("matplotlib",),
    "rocksdb": ("rocksdict",),
    "console": ("jinja2", "msgspec", "starlette", "uvicorn"),
    "otel": ("opentelemetry",),
    "grpc": ("grpc",),
}


def describe_missing(error: ModuleNotFoundError, command: str | None) -> str | None:
    """Return what to install, or None if the module belongs to no extra: then the error is a defect."""
    module = (error.name or "").partition(".")[0]
    extra = next((extra for extra, modules in MODULES.items() if module in modules), None)
    if extra is None:
        return None
    if command == "pipeline" and extra == "fast":
        extra = "spark"  # its jobs need both, and the extra `spark` includes `fast`
    return f"this command needs the package {module}: pip install 'orbitlog[{extra}]'"
