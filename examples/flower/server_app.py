"""The server: Flower's FedAvg with a defense in the place of the average."""

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from lff.data import load
from lff.flower import DefendedFedAvg
from lff.metrics import evaluate, outputs_of
from lff.models import CNN

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All peers train in each round; the test digits show what the global model is worth."""
    config = context.run_config
    torch.manual_seed(0)
    model = CNN()
    strategy = DefendedFedAvg(
        config["defense"],
        attacker_ratio=0.4,  # only for the defenses that must be told
        fraction_evaluate=0.0,
        min_train_nodes=config["peers"],
        min_available_nodes=config["peers"],
    )

    def accuracy(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        digits = load("mnist", data="embedded")
        source, target = config["source-class"], config["target-class"]
        told = evaluate(outputs_of(model, digits.test_x), digits.test_y, source, target)
        metrics = {"all-acc": told.all_acc, "src-acc": told.src_acc, "asr": told.asr}
        return MetricRecord({name: round(value, 3) for name, value in metrics.items()})

    strategy.start(grid, ArrayRecord(model.state_dict()), config["rounds"], evaluate_fn=accuracy)
