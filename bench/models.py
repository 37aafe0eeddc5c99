"""The models of `tools/bench` and tests/parity in torch, with the parameter names that Hearth's files use."""

import torch
from torch import nn

# The Llamas of llama2.c, the shapes of Llama 3.2 1B, and one for tests; and how many tokens a row of their training
# cases has.
LLAMAS = {
    "llama15m": {"hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6},
    "llama110m": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 12},
    "llama1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 2048,
    },
    "llama8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
    },
    "tiny": {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    },
}
VOCABULARY = 32000
CONTEXT = {"llama15m": 256, "llama110m": 512, "llama1b": 2048, "llama8b": 8192, "tiny": 32}
PROMPT_TOKENS, ANSWER_TOKENS = 32, 128


class SimpleCNN(nn.Module):
    """conv 3->16 3x3, relu, maxpool 2, linear 4096->10."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 16 * 16, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        return self.fc(x.flatten(1))


class MLP(nn.Module):
    """784-512-256-10, each hidden layer with batch norm, relu and dropout."""

    def __init__(self, dropout=0.2):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.bn1 = nn.BatchNorm1d(512)
        self.fc2 = nn.Linear(512, 256)
        self.bn2 = nn.BatchNorm1d(256)
        self.fc3 = nn.Linear(256, 10)
        self.dropout = dropout

    def forward(self, x):
        x = x.flatten(1)
        for linear, norm in ((self.fc1, self.bn1), (self.fc2, self.bn2)):
            x = nn.functional.relu(norm(linear(x)))
            x = nn.functional.dropout(x, self.dropout, self.training)
        return self.fc3(x)


class BasicBlock(nn.Module):
    def __init__(self, in_channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or in_channels != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        return nn.functional.relu(self.bn2(self.conv2(x)) + shortcut)


class Bottleneck(nn.Module):
    def __init__(self, in_channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or in_channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        x = nn.functional.relu(self.bn2(self.conv2(x)))
        return nn.functional.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """torchvision's names; a 7x7 stem with a max-pool for large images, else one of 3x3."""

    def __init__(self, width=64, num_classes=1000, large=True):
        super().__init__()
        kernel, stride, padding = (7, 2, 3) if large else (3, 1, 1)
        self.conv1 = nn.Conv2d(3, width, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        in_channels = width
        for stage, num_blocks in enumerate((3, 4, 6, 3)):
            blocks = []
            for block in range(num_blocks):
                blocks.append(Bottleneck(in_channels, width << stage, 2 if stage > 0 and block == 0 else 1))
                in_channels = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(in_channels, num_classes)

    def forward(self, x):
        x = self.pool(nn.functional.relu(self.bn1(self.conv1(x))))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class ConvStack(nn.Module):
    """The contracting half of a U-Net with batch norm: two 3x3 convolutions at each of four sizes, and a classifier."""

    def __init__(self, width=64, num_classes=10):
        super().__init__()
        layers, in_channels = [], 3
        for level in range(4):
            layers += [nn.MaxPool2d(2)] if level > 0 else []
            for _ in range(2):
                layers += [nn.Conv2d(in_channels, width << level, 3, padding=1, bias=False)]
                layers += [nn.BatchNorm2d(width << level), nn.ReLU()]
                in_channels = width << level
        self.features = nn.Sequential(*layers)
        self.fc = nn.Linear(in_channels, num_classes)

    def forward(self, x):
        return self.fc(self.features(x).mean((2, 3)))


class ResNet18(nn.Module):
    """torchvision's names; a 3x3 stem of stride 1 without max-pool, for 32x32 images."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        in_channels = 64
        for stage, width in enumerate((64, 128, 256, 512)):
            stride = 1 if stage == 0 else 2
            blocks = nn.Sequential(BasicBlock(in_channels, width, stride), BasicBlock(width, width, 1))
            setattr(self, f"layer{stage + 1}", blocks)
            in_channels = width
        self.fc = nn.Linear(512, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = nn.functional.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


MODELS = {"simplecnn": SimpleCNN, "mlp": MLP, "resnet18": ResNet18}


def image_shape(model):
    """Channels, height and width of the images that a model takes."""
    return (1, 28, 28) if model == "mlp" else (3, 32, 32)


def synthetic_batch(model, batch, seed=0):
    """Random images [N, C, H, W] and labels [N]."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, *image_shape(model), generator=generator)
    return images, torch.randint(0, 10, (batch,), generator=generator)


def make_llama(name):
    """transformers' Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **{"vocab_size": VOCABULARY, "max_position_embeddings": 1024, **LLAMAS[name]},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def add_lora(model, rank=16):
    """A PEFT adapter on every linear layer; the model under it is frozen."""
    from peft import LoraConfig, get_peft_model

    options = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(model, options)


def random_tokens(rows, context, seed=0, vocabulary=VOCABULARY):
    return torch.randint(0, vocabulary, (rows, context), generator=torch.Generator().manual_seed(seed), device="cpu")
