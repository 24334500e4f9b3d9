"""Show the topics, and one topic: its subscribers, its latest notifications, and a form to publish."""

from wirelake.broker.broker import check_topic
from wirelake.console.page import Context, page
from wirelake.errors import InputError
from wirelake.gateway.http.errors import ApiError
from wirelake.gateway.http.request_context import RequestContext
from wirelake.lake.query import is_written
from wirelake.lake.tables import NOTIFICATIONS
from wirelake.message import Topic


async def view(exchange: RequestContext) -> Context:
    return {"prefix": exchange.query("prefix")}


async def view_one(exchange: RequestContext) -> Context:
    name = exchange.path("topic")
    try:
        check_topic(name)
    except InputError as error:
        raise ApiError(400, str(error)) from error
    durable = Topic(name).is_durable
    own = exchange.gateway.state.topics.subscription(exchange.identity, name) is not None
    in_tables = exchange.admin and durable and is_written(exchange.gateway.folder / "lake", NOTIFICATIONS)
    data = {"topic": name, "durable": durable, "shown": exchange.admin or own, "in_tables": in_tables}
    return {"data": data, "topic": name, "durable": durable, "shown": data["shown"]}


ROUTES = (
    page("/topics", "topics.html", view),
    page("/topics/{topic}", "topic.html", view_one),
)
