"""Makes tiny random checkpoints of encoders as sentence-transformers and transformers save them.

    python scripts/models/make_tiny_encoders.py --out FOLDER

Needs the ``convert`` extra.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from make_tiny_cross_encoder import build_tokenizer
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer

MAX_TOKENS = 96
SHARED = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": MAX_TOKENS,
    "initializer_range": 0.2,  # ten times the usual spread: texts are otherwise all but the same to a random model
}
# RoBERTa's positions begin behind the padding's id, which is 0 in this vocabulary.
ROBERTA = {**SHARED, "max_position_embeddings": MAX_TOKENS + 1, "pad_token_id": 0, "type_vocab_size": 1}


TEXTS = ("how often", "Where is the valve?", "grease the bearings every month", "a", "NEVER plug a valve that lifts")


def save(network: Any, folder: Path, types: bool) -> None:
    """Writes a plain Hugging Face folder; biases and norms are drawn too, which a fresh network has at 0 and 1.

    Args:
        network: What is written.
        folder: Where to.
        types: Whether the tokenizer tells first and second text apart.
    """
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    network.eval().save_pretrained(folder)
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(),
        model_max_length=MAX_TOKENS,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask", *(["token_type_ids"] if types else [])],
    )
    wrapped.save_pretrained(folder)


def save_sentence_transformer(plain: Path, folder: Path, pooling: str, prompts: dict[str, str] | None) -> None:
    """Writes a sentence-transformers folder around a plain one."""
    modules = [Transformer(str(plain)), Pooling(SHARED["hidden_size"], pooling_mode=pooling), Normalize()]
    model = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    model.save_pretrained(str(folder))
    np.savez(
        folder.with_suffix(".npz"),
        texts=np.array(TEXTS),
        questions=model.encode_query(list(TEXTS), show_progress_bar=False),
        passages=model.encode_document(list(TEXTS), show_progress_bar=False),
    )


def save_scorer(network: Any, folder: Path, types: bool) -> None:
    """Writes a cross-encoder's folder and what transformers' own class says of every two texts."""
    save(network, folder, types)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    pairs = [(question, passage) for question in TEXTS for passage in TEXTS]
    with torch.no_grad():
        scores = [network(**tokenizer(*pair, return_tensors="pt")).logits.item() for pair in pairs]
    np.savez(folder.with_suffix(".npz"), pairs=np.array(pairs), scores=np.array(scores, np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    out: Path = parser.parse_args().out
    torch.set_num_threads(1)
    torch.manual_seed(3)
    words = build_tokenizer().get_vocab_size()
    bert = transformers.BertConfig(vocab_size=words, **SHARED)
    save(transformers.BertModel(bert), out / "bert-plain", types=True)
    save_sentence_transformer(out / "bert-plain", out / "bert-mean", "mean", None)
    prompts = {"query": "find: ", "document": "text: "}
    save_sentence_transformer(out / "bert-plain", out / "bert-cls-prompts", "cls", prompts)
    save_sentence_transformer(out / "bert-plain", out / "bert-max", "max", None)
    multilingual = transformers.XLMRobertaConfig(vocab_size=words, **ROBERTA)
    save(transformers.XLMRobertaModel(multilingual), out / "xlm-plain", types=False)
    save_sentence_transformer(out / "xlm-plain", out / "xlm-mean", "mean", {"query": "query: ", "passage": "passage: "})
    judge = transformers.BertConfig(vocab_size=words, num_labels=1, **SHARED)
    save_scorer(transformers.BertForSequenceClassification(judge), out / "bert-judge", types=True)
    classes = transformers.BertConfig(vocab_size=words, num_labels=3, **SHARED)
    save(transformers.BertForSequenceClassification(classes), out / "bert-classes", types=True)
    judge = transformers.XLMRobertaConfig(vocab_size=words, num_labels=1, **ROBERTA)
    save_scorer(transformers.XLMRobertaForSequenceClassification(judge), out / "xlm-judge", types=False)


if __name__ == "__main__":
    main()
