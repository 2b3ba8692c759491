"""A peer: she trains on her share of the digits. Nothing in here knows of a defense."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional as F

from lff.data import load
from lff.models import CNN

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Three epochs of SGD; an attacker has relabeled the source class as the target class."""
    config, me = context.run_config, context.node_config["partition-id"]
    digits = load("mnist", data="embedded")
    x = digits.train_x[me :: context.node_config["num-partitions"]]
    y = digits.train_y[me :: context.node_config["num-partitions"]]
    flips = me < config["attackers"]
    if flips:
        y = torch.where(y == config["source-class"], config["target-class"], y)

    model = CNN()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        for batch in torch.randperm(len(y)).split(64):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    # Attackers keep it to themselves; here it shows whom the round's metrics are of.
    metrics = {"num-examples": len(y), "train-loss": loss.item(), "flips": int(flips)}
    records = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(records), reply_to=message)
