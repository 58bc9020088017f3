"""Our attention against that of another library, on the same weights."""

import numpy as np
import pytest

from kformer.layers import MultiHeadAttention

torch = pytest.importorskip("torch")


@pytest.fixture
def twins(randomize):
    """Torch keeps its matrices the other way round, query, key and value one below the other."""
    ours = MultiHeadAttention(d_model=8, num_heads=2)
    ours.build((None, None, 8))
    randomize(ours)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    parameters = {
        "in_proj_weight": ours.qkv_kernel.numpy().T,
        "in_proj_bias": ours.qkv_bias.numpy(),
        "out_proj.weight": ours.output_kernel.numpy().T,
        "out_proj.bias": ours.output_bias.numpy(),
    }
    theirs.load_state_dict({name: torch.tensor(value) for name, value in parameters.items()})
    return ours, theirs


@pytest.mark.parametrize("across", [False, True])
def test_attention_equals_torchs(across, twins, random):
    ours, theirs = twins
    x = random(2, 4, 8)
    memory = random(2, 5, 8) if across else x
    mask = np.ones(memory.shape[:2], bool)
    mask[0, 3:] = False
    output, weights = ours(
        x, memory if across else None, mask[:, None, None, :], return_weights=True
    )
    given = [torch.tensor(tensor) for tensor in (x, memory, memory)]
    with torch.no_grad():
        # There True hides a key.
        expected, expected_weights = theirs(
            *given, key_padding_mask=torch.tensor(~mask), average_attn_weights=False
        )
    np.testing.assert_allclose(output, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(weights, expected_weights.numpy(), atol=1e-5)
