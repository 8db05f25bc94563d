"""`wgpr stream`: rows of a pipe are learned and queries are answered, in the order in which they come."""

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from wgpr.cli import options as opt
from wgpr.cli.console import UsageError, inform
from wgpr.cli.georeference import check_crs_of_log
from wgpr.cli.learn import require_online, require_weights
from wgpr.cli.lines import STANDARD_INPUT, HeaderError, LeftOut, Line, LineError, LineParser, read_lines
from wgpr.cli.saving import MapWriter, map_writer
from wgpr.cli.session import LineFault, Session, StreamOptions, StreamSession
from wgpr.estimators.base import OnlineRegressor
from wgpr.io.grids import input_names, target_name
from wgpr.io.tables import TableError


def stream(
    map_file: Annotated[Path | None, typer.Argument(metavar="MAP", help="A map, or where to save a new one.")] = None,
    to: Annotated[
        str, typer.Option(metavar="URL", help="Send rows to this map of a service, in place of MAP. See 'wgpr serve'.")
    ] = "",
    token_file: opt.TokenFile = None,
    x: opt.X = "",
    y: opt.Y = "",
    weight: opt.Weight = "",
    method: opt.Method = "",
    setting: opt.Settings = [],  # noqa: B006
    level: opt.Level = 0.95,
    save_every: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Time between two savings.")] = 60.0,
    report_every: Annotated[int, typer.Option(metavar="ROWS", min=1, help="Rows between two reports.")] = 1000,
    force: opt.Force = False,
    crs: opt.Crs = "",
    nodata: opt.NoData = [],  # noqa: B006
    nmea: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="Learn depths of NMEA 0183 from udp://HOST:PORT, serial:PORT?baud=4800, a file, or - for standard "
            "input. udp://:10110 takes datagrams of this computer only, udp://0.0.0.0:10110 those of all.",
        ),
    ] = "",
) -> None:
    """Learn rows of standard input, and answer queries on standard output.

    A line is CSV (inputs, then target) or JSON: `{"lon": 1, "lat": 2, "depth": 3}`, or `{"x": [1, 2], "y": 3}`. A line
    without target is a query, and is answered at once with mean, std, lower, upper and model. Each row is predicted
    before it is learned; the scores of these forecasts are reported on standard error. Lines that cannot be read, or
    are far outside of what is known, are reported and left out. So are rows at the beginning that the map has learned
    before: the same stream may come again, and go on. The map is saved every minute, at the end, and on Ctrl-C. If it
    does not exist, a new one is started. Rows are in a journal beside the map until it is saved, so that none is lost
    if the command is killed.

    With --nmea the rows are depths of an echo sounder with positions of a receiver, and there are no queries.

    Example: `tail -n +1 -f sonar.csv | wgpr stream lake.map --x east,north --y depth`
    """
    if (map_file is None) is (to == ""):
        raise UsageError("name one place for the rows: a MAP, or a map of a service with --to URL")
    half_width = opt.interval_half_width(level)
    if nmea and weight:
        raise UsageError("--weight is for lines of text; leave it out with --nmea")
    if nmea:
        check_crs_of_log(crs)
    columns = opt.split_names(x), y, weight, nodata
    said = StreamOptions(*columns, method, setting, is_log=bool(nmea), crs=crs, force=force)
    place = STANDARD_INPUT if nmea in ("", "-") else nmea
    if map_file is None:
        from wgpr.cli.remote import remote_session

        token = opt.read_token(token_file)
        with remote_session(to, token, said, level, report_every) as remote:
            remote.left_out, remote.force = LeftOut(place), force
            run_stream(remote, _lines(remote, nmea))
        return
    with map_writer(map_file, continues=True) as writer:
        model, parser = _open_map(writer, said)
        session = StreamSession(model, parser, half_width, report_every, writer, save_every, crs=said.crs)
        session.left_out, session.force = LeftOut(place), force
        run_stream(session, _lines(session, nmea))


def _lines(session: Session, nmea: str) -> Iterator[list[Line]]:
    """The lines of a stream, in lists as they arrive. nmea : address of an instrument, empty for standard input."""
    if not nmea:
        return _parse_lines(session, sys.stdin.fileno())
    from wgpr.cli.instruments import nmea_lines

    return nmea_lines(session, nmea)


def _open_map(writer: MapWriter, said: StreamOptions) -> tuple[OnlineRegressor, LineParser]:
    """The map to go on with, or a new one, and the parser of its lines."""
    if not writer.has_map:
        opt.check_map_output(writer.path)
        inform(f"{writer.path} does not exist yet; a new map is started")
        return said.new_estimator(), said.parser_of_new_map()
    if said.method or said.settings:
        raise UsageError(f"{writer.path} exists and keeps its settings; leave out --method and --set")
    if said.crs:
        raise UsageError(f"{writer.path} exists and keeps its coordinates; leave out --crs")
    model = writer.load()
    require_online(model)
    require_weights(model, said.weight)
    return model, said.parser_of_map(str(writer.path), input_names(model), target_name(model))


def run_stream(session: Session, stream: Iterator[list[Line]]) -> None:
    """Process the lines of a stream until it ends or is interrupted. Rows that are held back are learned at the end."""
    with session.interruptions.handled():
        try:
            try:
                for lines in stream:
                    _process(session, lines)
                    session.save_if_due()
                    session.interruptions.raise_waiting()
                _process(session, session.rest())
            except KeyboardInterrupt:
                session.stop()
                session.catch_up()
                for lines in stream:
                    _process(session, lines)
                _process(session, session.rest())
        finally:
            try:
                session.left_out.report()
            finally:
                session.finish()
    session.check_result()


def _process(session: Session, lines: list[Line]) -> None:
    """Learn rows, and print the answers to queries."""
    for text in session.process(lines):
        with session.interruptions.allowed():  # it may be that nobody reads them
            sys.stdout.write(text + "\n")
    with session.interruptions.allowed():
        sys.stdout.flush()


def _parse_lines(session: Session, descriptor: int) -> Iterator[list[Line]]:
    """The lines of a pipe, in lists as they arrive. Wrong ones are left out."""
    numbers = count(1)
    for texts in read_lines(descriptor, session.interruptions):
        lines: list[Line] = []
        faults: list[LineFault] = []
        wrong_header = None
        for text, number in zip(texts, numbers, strict=False):
            try:
                line = session.parser.parse(text.decode("utf-8", errors="replace"))
            except HeaderError as error:
                wrong_header = error
                break
            except LineError as error:
                faults.append((number, error))
            else:
                lines += [line._replace(number=number)] if line is not None else []
        yield session.good_lines(lines, faults)
        if wrong_header is not None:
            fault = f"standard input, line {number} {wrong_header}"
            try:
                yield session.rest()
            except TableError as error:
                fault = f"{fault}; {error}"
            raise TableError(fault) from wrong_header
        if session.is_stopping:
            return
