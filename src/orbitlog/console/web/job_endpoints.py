"""Endpoints of jobs: operators see their own, admins all."""

from __future__ import annotations

from orbitlog.console.console_call import Call
from orbitlog.console.session.console_roles import Role
from orbitlog.console.views import job_view
from orbitlog.console.views.answers import ConsoleError
from orbitlog.console.web.endpoint import Endpoint
from orbitlog.console.work.background_jobs import Job


def own_job(call: Call) -> Job:
    """Return the job that the path names; raise `ConsoleError` if it belongs to another user."""
    job = call.console.jobs.find(call.path["job"])
    if call.visitor.role is not Role.ADMIN and job.owner != call.visitor.name:
        raise ConsoleError(403, "this job belongs to another user")
    return job


async def list_jobs(call: Call) -> job_view.JobListing:
    listing = job_view.list_jobs(call.console.jobs, call.console.now_ms)
    if call.visitor.role is not Role.ADMIN:
        listing.items = [row for row in listing.items if row.owner == call.visitor.name]
    return listing


async def show_job(call: Call) -> job_view.JobAnswer:
    return job_view.show_job(call.console.jobs, own_job(call).id, call.query, call.console.now_ms)


JOB_ENDPOINTS = (
    Endpoint(
        "/jobs",
        "listJobs",
        "List jobs of this console.",
        job_view.JobListing,
        list_jobs,
        template="jobs.html",
        title="Jobs",
        section="jobs",
        role=Role.OPERATOR,
    ),
    Endpoint(
        "/jobs/{job}",
        "showJob",
        "Show state and progress of a job, and a page of its result.",
        job_view.JobAnswer,
        show_job,
        query=job_view.JobQuery,
        template="job.html",
        title="Job {job}",
        section="jobs",
        role=Role.OPERATOR,
    ),
)
