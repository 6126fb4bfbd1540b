"""The tour, act by act: each act runs real components and verifies the result."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

from orbitlog.cli.output.display_text import byte_count, counted
from orbitlog.cli.tour import tour_orders as orders
from orbitlog.cli.tour.tour_access import TOPIC, USER, TourAccess
from orbitlog.cli.tour.tour_console import TourConsole, why_no_console
from orbitlog.cli.tour.tour_derived import Comparison, compare_derived, move_derived
from orbitlog.cli.tour.tour_replicas import REPLICAS, TourReplicas, why_no_replicas
from orbitlog.cli.tour.tour_report import TourReport
from orbitlog.cli.tour.tour_servers import TourServers
from orbitlog.cli.tour.tour_spark import TourSpark, bars

_ACKNOWLEDGED_BEFORE_KILL = 1_000


class Tour:
    """All acts share the servers; the Spark acts share one session."""

    def __init__(
        self,
        servers: TourServers,
        directory: Path,
        report: TourReport,
        *,
        order_count: int,
        no_spark_reason: str | None,
    ) -> None:
        self._servers = servers
        self._directory = directory
        self._report = report
        self._order_count = order_count
        self._no_spark_reason = no_spark_reason
        self._acknowledged: set[str] = set()
        self.places = {"store": str(servers.store), "settings": str(servers.config), "logs": str(directory)}

    def run(self) -> None:
        with ExitStack() as running:
            self._start()
            self._order(range(self._order_count))
            self._delay_and_pay()
            self._show_console(running)
            spark = self._start_spark(running)
            if spark is not None:
                self._dispatch(spark)
                self._query(spark)
                self._export(spark)
            self._kill()
            self._rebuild(spark)
        self._control_access()
        self._fail_over()

    def _start(self) -> None:
        self._report.begin("A name server and a broker")
        name_server_s = self._servers.start_name_server()
        broker_s = self._servers.start_broker()
        self._report.show(
            "up",
            "name server and broker up",
            f"clients can connect after {name_server_s + broker_s:.2f} s, at {self._servers.address}",
            startSeconds=round(name_server_s + broker_s, 3),
        )

    def _order(self, numbers: range) -> None:
        self._report.begin("Orders, by several producers, in order")
        sent = asyncio.run(orders.send_orders(self._servers.address, numbers))
        self._acknowledged |= sent.acknowledged.keys()
        wanted = orders.PRODUCERS * sum(len(orders.events_of(number)) for number in numbers)
        count = len(sent.acknowledged)
        self._report.show(
            "sent",
            "orders sent, with keys and tags",
            f"{count:,} messages of {orders.PRODUCERS * len(numbers):,} orders by {orders.PRODUCERS} producers,"
            f" {count / sent.seconds:,.0f}/s",
            holds=count == wanted,
            messages=count,
            perSecond=round(count / sent.seconds),
        )
        consumed = asyncio.run(orders.consume_orders(self._servers.address, set(sent.acknowledged)))
        self._report.show(
            "consumed",
            "consumed in order",
            f"{consumed.messages:,} messages of {consumed.orders:,} orders, {consumed.out_of_order} out of order",
            holds=consumed.messages == count and not consumed.out_of_order,
            messages=consumed.messages,
            outOfOrder=consumed.out_of_order,
        )

    def _delay_and_pay(self) -> None:
        self._report.begin("A delayed message, and transactions")
        wanted_s, waited_s = asyncio.run(orders.remind_later(self._servers.address))
        self._report.show(
            "delayed",
            "a delay",
            f"a message with a delay of {wanted_s:.0f} s arrived after {waited_s:.1f} s",
            holds=waited_s >= wanted_s,
            delaySeconds=round(waited_s, 3),
        )
        seen = asyncio.run(orders.pay_in_transactions(self._servers.address))
        self._report.show(
            "transactions",
            "transactions",
            f"one committed, one rolled back; consumers receive: {', '.join(seen)}",
            holds=seen == ["paid"],
            seen=seen,
        )

    def _show_console(self, running: ExitStack) -> None:
        self._report.begin("The web console")
        reason = why_no_console()
        if reason is not None:
            self._report.leave_out("the console", reason)
            return
        self._report.command(f"orbitlog console -n {self._servers.address}")
        console = TourConsole(self._directory, self._servers.address)
        running.callback(console.stop)
        topics = console.topics()
        self._report.show(
            "console",
            "web console",
            f"{console.url} while the tour runs; it shows {', '.join(topics)}",
            holds={orders.ORDERS, orders.PAYMENTS, orders.REMINDERS} <= set(topics),
            url=console.url,
            topics=topics,
        )

    def _control_access(self) -> None:
        self._report.begin("Access control: a user that may only send to one topic")
        with TourAccess(self._directory) as access:
            for command in access.commands:
                self._report.command(f"orbitlog {command}")
            decided = access.decide()
        self._report.show(
            "access",
            "access control",
            f"{USER} may send to {TOPIC} alone; a wrong password and unsigned requests are refused"
            if decided.are_right
            else f"unexpected: {decided}",
            holds=decided.are_right,
            ownTopic=decided.own_topic,
            otherTopic=decided.other_topic,
            wrongPassword=decided.wrong_password,
            unsigned=decided.unsigned,
        )

    def _fail_over(self) -> None:
        self._report.begin(f"A replica group of {REPLICAS} brokers loses its master")
        reason = why_no_replicas()
        if reason is not None:
            self._report.leave_out("the failover", reason)
            return
        store = self._directory / "replicas"
        self._report.command(f"orbitlog up --replicas {REPLICAS} --coordinator etcd --store {store}")
        with TourReplicas(self._directory) as replicas:
            self._report.say(f"{REPLICAS} brokers and etcd are up after {replicas.start_seconds:.1f} s")
            done = replicas.fail_over()
        self._report.show(
            "failover",
            "failover, without an operator",
            f"{done.new_master} took over after {done.pause_seconds:.1f} s; {done.missing} of"
            f" {done.before + done.after:,} acknowledged messages are missing",
            holds=not done.missing,
            acknowledged=done.before + done.after,
            missing=done.missing,
            pauseSeconds=round(done.pause_seconds, 3),
        )

    def _start_spark(self, running: ExitStack) -> TourSpark | None:
        self._report.begin("The pipeline, on Spark")
        if self._no_spark_reason is not None:
            self._report.leave_out("the Spark part", self._no_spark_reason)
            return None
        self._report.say("Spark is starting")
        spark = running.enter_context(TourSpark(self._servers.store))
        self._report.say(f"Spark is up after {spark.start_seconds:.1f} s")
        return spark

    def _dispatch(self, spark: TourSpark) -> None:
        """Send more orders, which reach consumers through queues that Spark writes."""
        self._servers.stop_broker()
        self._servers.start_broker("spark")
        self._report.say("the broker was restarted with dispatchEngine=spark")
        self._report.command(f"orbitlog pipeline dispatch {self._servers.store}")
        first = self._order_count
        with spark.dispatching() as dispatching:
            self._report.say("Spark has taken over dispatch")
            sent = asyncio.run(orders.send_orders(self._servers.address, range(first, first + max(first // 4, 1))))
            consumed = asyncio.run(orders.consume_orders(self._servers.address, set(sent.acknowledged)))
        self._servers.stop_broker()
        self._servers.start_broker()
        self._acknowledged |= sent.acknowledged.keys()
        done = dispatching.progress
        dispatched, batches = (done.messages, done.batches) if done else (0, 0)
        self._report.show(
            "dispatched",
            "Spark dispatches for a live broker",
            f"{dispatched:,} messages in {batches} {'batch' if batches == 1 else 'batches'},"
            f" {consumed.messages:,} consumed, {consumed.out_of_order} out of order",
            holds=dispatched >= len(sent.acknowledged) == consumed.messages and not consumed.out_of_order,
            messages=dispatched,
            batches=batches,
        )

    def _query(self, spark: TourSpark) -> None:
        key = orders.order_key(1, 1)
        self._report.command(f"orbitlog pipeline query {self._servers.store} --topic {orders.ORDERS} --key {key}")
        by_index = sorted(asyncio.run(orders.find_by_key(self._servers.address, key)))
        by_spark = sorted(spark.find_by_key(key))
        self._report.show(
            "key",
            "query by key, with Spark and with the broker's index",
            f"{key}: {len(by_spark)} messages from Spark, the same {len(by_index)} from the broker",
            holds=by_spark == by_index and len(by_spark) == len(orders.EVENTS),
            found=len(by_spark),
        )
        rows = spark.query()
        for line in bars(rows):
            self._report.say(line)
        self._report.show(
            "sql",
            "SQL query",
            "; ".join(f"{row['event']} {row['orders']:,}, money {row['money']:,.2f}" for row in rows[:2]) + "; ...",
            holds=sum(row["orders"] for row in rows) == len(self._acknowledged),
            rows=rows,
        )

    def _export(self, spark: TourSpark) -> None:
        table, picture = self._directory / "orders-table", self._directory / "statistics.png"
        self._report.command(f"orbitlog pipeline export {self._servers.store} --topic {orders.ORDERS} --to {table}")
        exported = spark.export(table)
        rows_read = spark.count_table(table)
        self._report.show(
            "exported",
            "Parquet table",
            f"{exported.messages:,} messages in {counted(exported.files, 'file')} of {byte_count(exported.size_bytes)}",
            holds=exported.messages == rows_read == len(self._acknowledged),
            messages=exported.messages,
            rowsRead=rows_read,
        )
        self.places["table"] = str(table)
        self._report.command(f"orbitlog pipeline stats {self._servers.store} --plot {picture}")
        if spark.plot(picture):
            size = byte_count(picture.stat().st_size)
            self._report.show("chart", "plot of the store", f"{picture.name}, {size}", picture=str(picture))
            self.places["chart"] = str(picture)
        else:
            self._report.leave_out("plot of the store", "matplotlib is not installed: pip install 'orbitlog[plot]'")

    def _kill(self) -> None:
        self._report.begin("The broker is killed (kill -9) during sends, and restarted")
        servers = self._servers
        sent = asyncio.run(orders.send_until_killed(servers.address, _ACKNOWLEDGED_BEFORE_KILL, servers.kill_broker))
        self._report.say(f"killed after {len(sent.acknowledged):,} acknowledgements, {sent.unanswered} sends in flight")
        started_s = servers.start_broker()
        self._acknowledged |= sent.acknowledged.keys()
        missing = asyncio.run(orders.read_back(servers.address, self._acknowledged))
        self._report.show(
            "killed",
            "no message lost by kill -9",
            f"restarted after {started_s:.2f} s; {len(missing)} of {len(self._acknowledged):,} acknowledged messages"
            " are missing",
            holds=not missing and len(sent.acknowledged) >= _ACKNOWLEDGED_BEFORE_KILL,
            acknowledged=len(self._acknowledged),
            missing=len(missing),
            startSeconds=round(started_s, 3),
        )

    def _rebuild(self, spark: TourSpark | None) -> None:
        """Delete the derived files, and rebuild them in two ways."""
        from orbitlog.doctor.examination import examine
        from orbitlog.doctor.repair.derived_rebuild import RebuildWish, rebuild_in_place
        from orbitlog.settings.store_settings import load_settings

        self._report.begin("ConsumeQueues and index are deleted and rebuilt from the log")
        store, kept = self._servers.store, self._directory / "derived-by-the-broker"
        self._servers.stop_broker()
        move_derived(store, kept)
        self.places["derived before"] = str(kept)
        self._report.command(f"orbitlog doctor rebuild {store} --config {self._servers.config}")
        # File sizes cannot be inferred from deleted files: read them from the broker's settings.
        settings = load_settings(self._servers.config, ())
        started_s = time.perf_counter()
        rebuilt = rebuild_in_place(store, RebuildWish(), settings)
        seconds = time.perf_counter() - started_s
        self._compared(
            "doctor", f"rebuilt by the doctor in {seconds:.1f} s", compare_derived(kept, store), rebuilt.messages
        )
        if spark is not None:
            out = self._directory / "derived-by-spark"
            self._report.command(f"orbitlog pipeline rebuild {store} --out {out} --config {self._servers.config}")
            started_s = time.perf_counter()
            rebuilt = spark.rebuild(out, settings)
            seconds = time.perf_counter() - started_s
            self._compared(
                "spark", f"rebuilt by Spark in {seconds:.1f} s", compare_derived(kept, out), rebuilt.messages
            )
            self.places["derived by Spark"] = str(out)
        self._report.command(f"orbitlog doctor check {store}")
        examined = examine(store)
        checked = examined.check
        self._report.show(
            "checked",
            "the doctor's check",
            f"{checked.messages:,} messages and all derived files are sound"
            if examined.is_sound
            else f"{len(examined.problems)} findings",
            holds=examined.is_sound,
            messages=checked.messages,
            findings=len(examined.problems),
        )

    def _compared(self, name: str, what: str, compared: Comparison, messages: int) -> None:
        same = compared.files - len(compared.different)
        self._report.show(
            name,
            what,
            f"{messages:,} messages: {same} of {compared.files} files ({byte_count(compared.size_bytes)}) are the same,"
            " byte for byte",
            holds=not compared.different and compared.files > 0,
            messages=messages,
            files=compared.files,
            different=list(compared.different),
        )
