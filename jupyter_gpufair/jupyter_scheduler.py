"""jupyter-scheduler's jobs as batch notebooks of ours: queued, preempted, resumed, charged like all others.

``SchedulerApp.scheduler_class = "jupyter_gpufair.jupyter_scheduler.GpufairScheduler"`` and, so that one chooses among
the profiles, ``SchedulerApp.environment_manager_class = "jupyter_gpufair.jupyter_scheduler.GpufairEnvironments"``.

A job is a workload with the job's own id. jupyter-scheduler's database says what was asked for, the service says what
became of it; one thread brings the first up to the second. So nothing is lost with the Jupyter server: the next one goes
on where this one was, and a submission that is repeated is the same submission.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nbconvert
import nbformat
from jupyter_scheduler.environments import CondaEnvironmentManager, EnvironmentRetrievalError
from jupyter_scheduler.exceptions import InputUriError, SchedulerError
from jupyter_scheduler.models import CreateJob, DescribeJob, RuntimeEnvironment, Status
from jupyter_scheduler.orm import Job
from jupyter_scheduler.scheduler import Scheduler
from jupyter_scheduler.utils import get_utc_timestamp

from gpufair.cli.words import what
from gpufair.client import Client, NotFound, Refused, Workload
from gpufair.client.notebooks import ROOT, BadNotebook, NotebookJob, launch, prepare
from gpufair.core.errors import GpufairError

POLL_S = 2.0
MAX_MESSAGE = 1000  # of the column
RESULT = ".gpufair-result.ipynb"  # in the job's folder, where no notebook was asked for
_LIVE = (Status.CREATED, Status.QUEUED, Status.IN_PROGRESS, Status.STOPPING)
_RUNNING = frozenset({"running", "checkpointing", "stopping", "restoring"})
_ENDED = {"completed": Status.COMPLETED, "cancelled": Status.STOPPED}
# What may stand in the parameters of a job's environment: fields of a submission, as with papermill.
_WORDS = ("allocation", "gpu_type", "within")
_WHOLE = ("gpus", "nodes", "priority", "cpus", "memory_bytes", "retries")
_SECONDS = ("min_runtime_s", "expected_s", "timeout_s", "retry_after_s")

_log = logging.getLogger(__name__)


class GpufairEnvironments(CondaEnvironmentManager):  # type: ignore[misc]  # published without annotations
    """The profiles of the service, as environments to choose from."""

    def list_environments(self) -> list[RuntimeEnvironment]:
        """Called when the dialog for a new job opens.

        Raises: EnvironmentRetrievalError: The service does not answer.
        """
        try:
            with Client() as service:
                profiles = service.profiles()
        except GpufairError as err:
            raise EnvironmentRetrievalError(str(err)) from err
        return [
            RuntimeEnvironment(
                name=profile.name,
                label=profile.display_name or profile.name,
                description=f"{profile.gpus * profile.nodes} GPUs, through the scheduler",
                file_extensions=["ipynb"],
                output_formats=["ipynb", "html"],
                metadata={},
            )
            for profile in profiles
        ]


class GpufairScheduler(Scheduler):  # type: ignore[misc]  # published without annotations
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deciding = threading.Lock()  # held from looking at a job until what follows is done
        self._news = threading.Event()
        self._news.set()  # what a server before us has left
        threading.Thread(target=self._follow, name="gpufair-jobs", daemon=True).start()

    # ------------------------------------------------------------------ what jupyter-scheduler calls
    def create_job(self, model: CreateJob) -> str:
        """Write it down; it is submitted within a moment, or as soon as the service answers."""
        if not model.job_definition_id and not self.file_exists(model.input_uri):
            raise InputUriError(model.input_uri)
        source = Path(self.root_dir, model.input_uri)
        if not self.execution_manager_class.validate(self.execution_manager_class, str(source)):
            raise SchedulerError("The notebook names no kernel. Open it, choose one, save it, and submit it again.")
        wish_of(model.runtime_environment_name, model.runtime_environment_parameters or {})
        model.output_formats = model.output_formats or []
        with self.db_session() as session:
            row = Job(**model.dict(exclude_none=True, exclude={"input_uri"}), status=Status.CREATED)
            session.add(row)
            session.commit()
            staged = self.get_staging_paths(DescribeJob.from_orm(row))["input"]
            if model.package_input_folder:
                copied = self.copy_input_folder(model.input_uri, staged)
                row.packaged_files = [name for name in copied if name != source.name]
            else:
                Path(staged).parent.mkdir(parents=True, exist_ok=True)
                self.copy_input_file(model.input_uri, staged)
            row.status = Status.QUEUED  # it is whole: from now on it is followed
            session.commit()
            job_id = str(row.job_id)
        self._news.set()
        return job_id

    def stop_job(self, job_id: str) -> None:
        """End the workload, as soon as the service can be told."""
        if self.get_job(job_id, job_files=False).status in _LIVE:
            self._set(job_id, status=Status.STOPPING)
            self._news.set()

    def delete_job(self, job_id: str) -> None:
        """Forget the job, and end the workload first.

        Raises: SchedulerError: That could not be done; the job stays.
        """
        with self._deciding:
            if self.get_job(job_id, job_files=False).status in _LIVE:
                try:
                    with Client() as service, suppress(NotFound):
                        service.stop(job_id)
                except GpufairError as err:
                    raise SchedulerError(f"The job could not be ended, so it stays: {err}") from err
            self._set(job_id, status=Status.STOPPED)
            super().delete_job(job_id)

    # ------------------------------------------------------------------ in the thread
    def _follow(self) -> None:
        said = ""
        while True:
            self._news.clear()
            live, problem = True, ""
            try:
                live = self._round()
            except GpufairError as err:
                problem = str(err)
            except Exception:  # noqa: BLE001
                # One round that fails must not end the following of all jobs.
                _log.exception("looking after the jobs failed")
            if problem and problem != said:
                _log.warning("jobs wait: %s", problem)
            said = problem
            self._news.wait(POLL_S if live else None)

    def _round(self) -> bool:
        """Bring each job that is not over up to what the service says; whether there is any."""
        jobs = self._followed()
        if jobs:
            with Client() as service:
                known = {one.id: one for one in service.workloads()}
                for job_id in jobs:
                    with self._deciding:
                        for job in self._followed(job_id).values():  # unless it was deleted meanwhile
                            with self._failing(job):
                                self._look_after(service, job, known.get(job_id))
        return bool(jobs)

    def _followed(self, only: str | None = None) -> dict[str, DescribeJob]:
        with self.db_session() as session:
            rows = session.query(Job).filter(Job.status.in_([Status.QUEUED, Status.IN_PROGRESS, Status.STOPPING]))
            if only is not None:
                rows = rows.filter(Job.job_id == only)
            return {str(row.job_id): DescribeJob.from_orm(row) for row in rows.all()}

    @contextmanager
    def _failing(self, job: DescribeJob) -> Iterator[None]:
        """What is refused, or cannot be, is the job's failure; a service that is away is nobody's."""
        try:
            yield
        except (Refused, BadNotebook, OSError) as err:
            self._set(job.job_id, status=Status.FAILED, status_message=str(err), end_time=get_utc_timestamp())
        except (ValueError, KeyError) as err:  # of nbformat and nbconvert, about what is in the notebook
            message = f"its outputs could not be written: {type(err).__name__}: {err}"
            self._set(job.job_id, status=Status.FAILED, status_message=message, end_time=get_utc_timestamp())

    def _look_after(self, service: Client, job: DescribeJob, now: Workload | None) -> None:
        stopping = job.status == Status.STOPPING
        if now is None and not stopping:
            now = self._submit(service, job)
        elif now is not None and now.live and stopping:
            now = service.stop(job.job_id)
        if now is None:
            self._set(job.job_id, status=Status.STOPPED, end_time=get_utc_timestamp())
        elif not now.live:
            self._end(job, now)
        elif not stopping:
            told = f"{what(now)}: {now.reason}" if now.reason else what(now)
            running = now.state in _RUNNING
            more = {"start_time": get_utc_timestamp()} if running and job.start_time is None else {}
            self._set(job.job_id, status=Status.IN_PROGRESS if running else Status.QUEUED, status_message=told, **more)

    def _submit(self, service: Client, job: DescribeJob) -> Workload:
        staged = Path(self.get_staging_paths(job)["input"])
        wish = wish_of(job.runtime_environment_name, job.runtime_environment_parameters or {})
        shutil.rmtree(staged.parent / ROOT, ignore_errors=True)  # of a submission that was cut short
        folder = prepare(staged.read_bytes(), NotebookJob(str(self._result(job)), dict(job.parameters or {})), job.job_id)
        return service.submit(
            launch(folder, str(staged.parent), {}),
            id=job.job_id,
            name=job.name,
            kind="batch",
            resumable=True,
            user=os.environ.get("GPUFAIR_USER") or None,
            **wish,
        )

    def _result(self, job: DescribeJob) -> Path:
        paths = self.get_staging_paths(job)
        return Path(paths.get("ipynb") or Path(paths["input"]).with_name(RESULT))

    def _end(self, job: DescribeJob, now: Workload) -> None:
        """Put the outputs where jupyter-scheduler looks for them, and say how it ended."""
        paths, result = self.get_staging_paths(job), self._result(job)
        folder = Path(paths["input"]).parent
        shutil.rmtree(folder / ROOT, ignore_errors=True)
        failed = ""
        if result.exists():
            notebook: Any = nbformat.read(str(result), as_version=4)  # type: ignore[no-untyped-call]
            failed = _failure_in(notebook.cells)
            for form in {*(job.output_formats or [])} - {"ipynb", "input"}:
                exporter: Any = nbconvert.get_exporter(form)  # type: ignore[no-untyped-call]
                text, _ = exporter().from_notebook_node(notebook)
                Path(paths[form]).write_text(text, encoding="utf-8")
        known = {Path(path).resolve() for path in (*paths.values(), folder / RESULT)}
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.resolve() not in known)
        status = _ENDED.get(now.outcome or "", Status.FAILED)
        told = "" if status == Status.COMPLETED else "; ".join(part for part in (failed, now.reason) if part)
        self._set(job.job_id, status=status, status_message=told, end_time=get_utc_timestamp(), packaged_files=files)

    def _set(self, job_id: str, **fields: Any) -> None:
        if "status_message" in fields:
            fields["status_message"] = fields["status_message"][:MAX_MESSAGE]
        with self.db_session() as session:
            # A job that is being stopped meanwhile must not be set back to running.
            rows = session.query(Job).filter(Job.job_id == job_id)
            if fields.get("status") in {Status.QUEUED, Status.IN_PROGRESS}:
                rows = rows.filter(Job.status != Status.STOPPING)
            rows.update(fields)
            session.commit()


def wish_of(profile: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a submission for a job's environment and its parameters.

    Raises: SchedulerError: A parameter is none that the scheduler knows, or no number.
    """
    wish: dict[str, Any] = {"profile": profile}
    kinds = dict.fromkeys(_WORDS, str) | dict.fromkeys(_WHOLE, int) | dict.fromkeys(_SECONDS, float)
    for name, value in parameters.items():
        if name == "notify":
            wish[name] = [word.strip() for word in str(value).split(",")]
            continue
        if name not in kinds:
            raise SchedulerError(f"There is no {name!r} to ask for; there are {', '.join((*kinds, 'notify'))}.")
        try:
            wish[name] = kinds[name](value)  # a dialog may hand on numbers as text
        except ValueError as err:
            raise SchedulerError(f"{name} = {value!r} is no {kinds[name].__name__}.") from err
    return wish


def _failure_in(cells: Iterable[Any]) -> str:
    for number, cell in enumerate(cells, 1):
        for output in cell.get("outputs", []):
            if output.get("output_type") == "error":
                return f"cell {number} failed: {output.get('ename')}: {output.get('evalue')}"
    return ""
