import numpy as np
import pytest


@pytest.fixture
def hypotheses():
    """Lists of (tokens, log-probabilities, sum, score, ended) of each sentence of a result."""

    def hypotheses(result):
        arrays = [part.numpy() for part in result]
        rows = []
        for of_row in zip(*arrays, strict=True):
            found = []
            for tokens, log_probabilities, total, score, ended in zip(*of_row, strict=True):
                n = np.count_nonzero(tokens)
                assert not tokens[n:].any() and not log_probabilities[n:].any()
                if score > -1e8:
                    found.append((tokens[:n].tolist(), log_probabilities[:n], total, score, ended))
            rows.append(found)
        return rows

    return hypotheses
