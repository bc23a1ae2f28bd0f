"""Networks that read rows, graphs and coordinates."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class TabularMLP(nn.Module):
    """Rows of numbers and categories: an embedding for each category, and a stack of linear layers."""

    def __init__(self, num_numeric=6, cardinalities=(7, 4, 11), hidden=(32, 16), num_classes=3):
        super().__init__()
        self.embeds = nn.ModuleList([nn.Embedding(c, min(50, (c + 1) // 2)) for c in cardinalities])
        n_emb = sum(e.embedding_dim for e in self.embeds)
        self.bn_cont = nn.BatchNorm1d(num_numeric)
        layers = []
        prev = n_emb + num_numeric
        for size in hidden:
            layers += [nn.Linear(prev, size), nn.ReLU(inplace=True), nn.BatchNorm1d(size), nn.Dropout(0.2)]
            prev = size
        layers.append(nn.Linear(prev, num_classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, x_cat, x_cont):
        x = [e(x_cat[:, i]) for i, e in enumerate(self.embeds)]
        x = torch.cat([*x, self.bn_cont(x_cont)], 1)
        return self.layers(x)


class GraphConvolution(nn.Module):
    """Kipf and Welling, arXiv:1609.02907, with weights stored as in x out."""

    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        if self.bias is not None:
            return output + self.bias
        return output


class GCN(nn.Module):
    """Classes of the nodes of one graph, whose adjacency is a matrix."""

    def __init__(self, nfeat=8, nhid=16, nclass=4, dropout=0.5):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        x = self.gc2(x, adj)
        return F.log_softmax(x, dim=1)


class SAGEConv(nn.Module):
    """The mean of a node's neighbours, from a list of edges."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin_l = nn.Linear(in_channels, out_channels)
        self.lin_r = nn.Linear(in_channels, out_channels, bias=False)

    def forward(self, x, edge_index):
        src, dst = edge_index
        agg = torch.zeros_like(x).index_add_(0, dst, x[src])
        deg = torch.zeros(x.size(0), dtype=x.dtype, device=x.device)
        deg = deg.scatter_add_(0, dst, torch.ones_like(dst, dtype=x.dtype)).clamp(min=1)
        return self.lin_l(agg / deg.unsqueeze(-1)) + self.lin_r(x)


class GraphSAGE(nn.Module):
    def __init__(self, in_channels=8, hidden_channels=16, out_channels=4):
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(in_channels, hidden_channels), SAGEConv(hidden_channels, hidden_channels)])
        self.norms = nn.ModuleList([nn.LayerNorm(hidden_channels) for _ in self.convs])
        self.head = nn.Linear(hidden_channels, out_channels)

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = F.elu(norm(conv(x, edge_index)))
        return self.head(x.mean(dim=0)), x


class Expert(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.SiLU(), nn.Linear(hidden, dim))


class MixtureOfExperts(nn.Module):
    """A block of a transformer whose tokens go through the best two of four experts."""

    def __init__(self, dim=16, hidden=24, num_experts=4, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.num_experts = num_experts
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(num_experts)])

    def forward(self, x):
        h = self.norm(x)
        logits = self.gate(h)
        top, indices = logits.topk(self.top_k, dim=-1)
        weights = torch.zeros_like(logits).scatter(-1, indices, top.softmax(dim=-1))
        out = torch.stack([expert(h) for expert in self.experts], dim=-2)
        out = (weights.unsqueeze(-1) * out).sum(dim=-2)
        load = F.one_hot(indices, self.num_experts).to(x.dtype).mean(dim=(0, 1, 2))
        aux = self.num_experts * (load * logits.softmax(dim=-1).mean(dim=(0, 1))).sum()
        return x + out, aux


class KANLinear(nn.Module):
    """A learnt B-spline on every edge, beside a linear layer; Liu et al., arXiv:2404.19756."""

    def __init__(self, in_features, out_features, grid_size=5, spline_order=3, grid_range=(-1, 1)):
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.grid_size = grid_size
        self.spline_order = spline_order
        h = (grid_range[1] - grid_range[0]) / grid_size
        grid = (
            (torch.arange(-spline_order, grid_size + spline_order + 1) * h + grid_range[0])
            .expand(in_features, -1)
            .contiguous()
        )
        self.register_buffer("grid", grid)
        self.base_weight = nn.Parameter(torch.empty(out_features, in_features))
        self.spline_weight = nn.Parameter(torch.randn(out_features, in_features, grid_size + spline_order) * 0.1)
        self.spline_scaler = nn.Parameter(torch.empty(out_features, in_features))
        self.base_activation = nn.SiLU()
        nn.init.kaiming_uniform_(self.base_weight, a=math.sqrt(5))
        nn.init.kaiming_uniform_(self.spline_scaler, a=math.sqrt(5))

    def b_splines(self, x):
        assert x.dim() == 2
        assert x.size(1) == self.in_features
        grid = self.grid
        x = x.unsqueeze(-1)
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.spline_order + 1):
            bases = ((x - grid[:, : -(k + 1)]) / (grid[:, k:-1] - grid[:, : -(k + 1)]) * bases[:, :, :-1]) + (
                (grid[:, k + 1 :] - x) / (grid[:, k + 1 :] - grid[:, 1:(-k)]) * bases[:, :, 1:]
            )
        return bases.contiguous()

    @property
    def scaled_spline_weight(self):
        return self.spline_weight * self.spline_scaler.unsqueeze(-1)

    def forward(self, x):
        base_output = F.linear(self.base_activation(x), self.base_weight)
        spline_output = F.linear(
            self.b_splines(x).view(x.size(0), -1), self.scaled_spline_weight.view(self.out_features, -1)
        )
        return base_output + spline_output


class KAN(nn.Module):
    def __init__(self, layers_hidden=(4, 8, 3)):
        super().__init__()
        self.layers = nn.ModuleList(KANLinear(a, b) for a, b in zip(layers_hidden[:-1], layers_hidden[1:]))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class FourierMLP(nn.Module):
    """Colour and density at points from the sines of their coordinates, as radiance fields have it; no batch."""

    def __init__(self, num_freqs=4, width=32, skips=(2,), depth=4):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(num_freqs) * math.pi, persistent=False)
        self.skips = skips
        input_ch = 3 + 3 * 2 * num_freqs
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, width)]
            + [nn.Linear(width + input_ch if i in skips else width, width) for i in range(depth - 1)]
        )
        self.alpha_linear = nn.Linear(width, 1)
        self.rgb_linear = nn.Linear(width, 3)

    def embed(self, x):
        scaled = (x[..., None, :] * self.freqs[:, None]).flatten(-2)
        return torch.cat([x, torch.sin(scaled), torch.cos(scaled)], dim=-1)

    def forward(self, points):
        embedded = self.embed(points)
        h = embedded
        for i, layer in enumerate(self.pts_linears):
            h = F.relu(layer(h))
            if i in self.skips:
                h = torch.cat([embedded, h], -1)
        return torch.cat([torch.sigmoid(self.rgb_linear(h)), F.softplus(self.alpha_linear(h))], -1)
