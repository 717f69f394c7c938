"""Training through a trainer in the style of Hugging Face, with callbacks and evaluation."""

import copy
import io
import sys

import torch
from torch import nn


class Recorder:
    def on_log(self, logs):
        print(*(value.hex() for value in logs.values()))


class Trainer:
    def __init__(self, model, train_dataset, eval_dataset, max_steps, callbacks):
        self.model, self.max_steps, self.callbacks = model, max_steps, callbacks
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        self.averaged = copy.deepcopy(model)

    def loader(self, dataset, shuffle):
        return torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=shuffle)

    def compute_loss(self, model, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(model(inputs), targets)

    def training_step(self, batch):
        self.model.train()
        loss = self.compute_loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(self.averaged.parameters(), self.model.parameters()):
                slow.lerp_(fast, 0.1)
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.averaged.eval()
        losses = [
            self.compute_loss(self.averaged, batch)
            for batch in self.loader(self.eval_dataset, False)
        ]
        return torch.stack(losses).mean().item()

    def train(self):
        step = 0
        while step < self.max_steps:
            for batch in self.loader(self.train_dataset, True):
                logs = {"loss": self.training_step(batch)}
                step += 1
                if step % 10 == 0:
                    logs["eval_loss"] = self.evaluate()
                    torch.save(self.model, io.BytesIO())
                for callback in self.callbacks:
                    callback.on_log(logs)
                if step == self.max_steps:
                    break


def dataset(rows):
    inputs = torch.randn(rows, 16)
    return torch.utils.data.TensorDataset(inputs, inputs.sin().sum(1, keepdim=True))


torch.manual_seed(3)
torch.set_num_threads(1)
steps = int(sys.argv[1]) if len(sys.argv) > 1 else 40
model = nn.Sequential(nn.Linear(16, 64), nn.Sequential(nn.GELU(), nn.Linear(64, 1)))
Trainer(model, dataset(256), dataset(64), steps, [Recorder()]).train()
