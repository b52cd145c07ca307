"""Convolutional networks."""

import torch
from torch import nn
from torch.nn import functional as F

from .case import Case, Net, classifier, image, labels


def lenet():
    stages = [nn.Conv2d(1, 3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3), nn.Tanh()]
    head = [nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 6), nn.Tanh(), nn.Linear(6, 3)]
    return classifier(*stages, *head, x=image(1, 14))


def strided_and_dilated():
    layers = [nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.SiLU()]
    layers += [nn.Conv2d(3, 3, (2, 3), dilation=2, padding=(1, 2)), nn.Softplus(), nn.Flatten()]
    return classifier(*layers, nn.Linear(48, 3), x=image(2, 8))


def grouped_and_depthwise():
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU6(), nn.Conv2d(4, 4, 3, padding=1, groups=4)]
    layers += [nn.Hardswish(), nn.Conv2d(4, 6, 1, groups=2), nn.LeakyReLU(), nn.Conv2d(6, 4, 1)]
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)]
    return classifier(*layers, x=image(2, 5))


def padding_modes():
    layers = []
    for mode in ("circular", "reflect", "replicate", "zeros"):
        size = (3, 2) if mode != "zeros" else 3  # torch warns of an even size with zeros
        layers += [nn.Conv2d(2, 2, size, padding="same", padding_mode=mode), nn.Tanh()]
        layers += [nn.Conv2d(2, 2, 3, padding=(1, 2), stride=(1, 2), padding_mode=mode), nn.ELU()]
    return classifier(*layers, nn.Flatten(), nn.Linear(30, 3), x=image(2, 5))


def convolution_1d():
    layers = [nn.Conv1d(2, 4, 3, padding=1), nn.BatchNorm1d(4), nn.ReLU(), nn.AvgPool1d(2)]
    layers += [nn.Conv1d(4, 3, 2, dilation=2), nn.AdaptiveMaxPool1d(2), nn.Flatten()]
    return classifier(*layers, nn.Linear(6, 3), x=torch.randn(5, 2, 8))


def convolution_3d():
    layers = [nn.Conv3d(1, 2, 2), nn.Tanh(), nn.AvgPool3d(2), nn.Conv3d(2, 3, (1, 2, 1))]
    layers += [nn.BatchNorm3d(3), nn.MaxPool3d((2, 1, 2)), nn.Flatten(), nn.Linear(3, 3)]
    return classifier(*layers, x=torch.randn(3, 1, 5, 5, 5))


def transposed_convolution():
    up = [nn.ConvTranspose2d(2, 4, 3, stride=2, padding=1, output_padding=1), nn.ReLU()]
    up += [nn.ConvTranspose2d(4, 2, 2, groups=2, dilation=2), nn.Tanh()]
    up += [nn.ConvTranspose2d(2, 1, 2)]
    return Case(nn.Sequential(*up), nn.MSELoss(), image(2, 3), torch.randn(3, 1, 9, 9))


class _Block(nn.Module):
    """Two convolutions and a shortcut, as in ResNet-20."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.shortcut(x)
        return self.relu(out)


def resnet():
    stem = [nn.Conv2d(1, 2, 3, 1, 1, bias=False), nn.BatchNorm2d(2), nn.ReLU(inplace=True)]
    blocks = [_Block(2, 2, 1), _Block(2, 3, 2), _Block(3, 4, 2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)]
    return classifier(*stem, *blocks, *head, x=image(1, 8, 4))


def resnet_in_eval_mode():
    case = resnet()
    for module in case.model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    case.model.eval()
    return case


def densenet_block():
    def layer(channels):
        return nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, 2, 3, padding=1)
        )

    def forward(m, x):
        for layer in (m.a, m.b, m.c):
            x = torch.cat([x, layer(x)], 1)
        return m.out(F.avg_pool2d(torch.relu(m.norm(x)), 2).flatten(1))

    layers = dict(a=layer(2), b=layer(4), c=layer(6), norm=nn.BatchNorm2d(8), out=nn.Linear(32, 3))
    return Case(Net(forward, **layers), nn.CrossEntropyLoss(), image(2, 4), labels(3, 3))


def unet():
    def forward(m, x):
        top = torch.relu(m.down(x))
        low = torch.tanh(m.middle(F.max_pool2d(top, 2)))
        joined = torch.cat((m.up(low), top, F.interpolate(low, scale_factor=2.0)), dim=1)
        return m.out(joined)

    layers = dict(down=nn.Conv2d(1, 2, 3, padding=1), middle=nn.Conv2d(2, 3, 3, padding=1))
    layers |= dict(up=nn.ConvTranspose2d(3, 2, 2, stride=2), out=nn.Conv2d(7, 2, 1))
    target = labels(48, 2).view(3, 4, 4)
    return Case(Net(forward, **layers), nn.CrossEntropyLoss(), image(1, 4), target)


def squeeze_and_excite():
    def forward(m, x):
        x = m.norm(m.conv(x))
        gate = torch.sigmoid(m.excite(x.mean((2, 3))))
        return m.out((x * gate[:, :, None, None]).sum(dim=(2, 3)))

    layers = dict(conv=nn.Conv2d(2, 4, 3), norm=nn.GroupNorm(2, 4), excite=nn.Linear(4, 4))
    model = Net(forward, out=nn.Linear(4, 3), **layers)
    return Case(model, nn.CrossEntropyLoss(), image(2, 5), labels(3, 3))


def shuffled_channels():
    def forward(m, x):
        kept, changed = m.a(x).chunk(2, dim=1)
        x = torch.cat([kept, m.b(changed)], 1)
        n, _, h, w = x.shape
        x = x.view(n, 2, 2, h, w).transpose(1, 2).flatten(1, 2)
        return m.out(F.pad(x, (1, 0), value=0.5)[:, 1:, ::2].flatten(1))

    layers = dict(a=nn.Conv2d(1, 4, 2), b=nn.Conv2d(2, 2, 3, padding=1), out=nn.Linear(30, 3))
    return Case(Net(forward, **layers), nn.CrossEntropyLoss(), image(1, 5), labels(3, 3))


def instance_norm():
    layers = [nn.Conv2d(1, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.Mish(), nn.LPPool2d(2, 2)]
    layers += [nn.ReflectionPad2d(1), nn.Conv2d(3, 2, 2), nn.Upsample(scale_factor=2)]
    return classifier(
        *layers, nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(8, 3), x=image(1, 6)
    )


def group_norm():
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU(), nn.AvgPool2d(2)]
    return classifier(*layers, nn.Flatten(), nn.Linear(16, 3), x=image(1, 4))
