"""A row and its event in one SQLAlchemy transaction: both or neither. ``python -m examples.transaction_sqlalchemy``."""

import asyncio
import tempfile

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from kingdom.bus import Envelope, connect, publish_sync


class Base(DeclarativeBase):
    """The application's own tables."""


class Order(Base):
    """An order of the shop."""

    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


def place_order(session: Session, item: str) -> None:
    """Store the order and publish its event; the caller commits."""
    session.add(order := Order(item=item))
    session.flush()  # gives the order its number
    event = Envelope(type="OrderPlaced", payload={"item": item}, aggregate_type="Order", aggregate_id=str(order.id))
    publish_sync("shop.orders", event, tx=session)


def pay(item: str) -> None:
    """Fail, so that the transaction around it rolls back."""
    raise RuntimeError(f"the payment for the {item} failed")


async def main(path: str) -> None:
    """Commit one order, roll another one back, and print what is on the bus."""
    async with connect(f"sqlite://{path}") as bus:
        await bus.setup()
        engine = create_engine(f"sqlite:///{path}")
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            place_order(session, "lamp")
        try:
            with Session(engine) as session, session.begin():
                place_order(session, "chair")
                pay("chair")
        except RuntimeError as error:
            print(f"rolled back: {error}")
        engine.dispose()
        found = await bus.claim("shop.orders", worker="example", limit=10)
        print("on the bus:", [delivery.envelope.payload["item"] for delivery in found])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(f"{folder}/shop.db"))
