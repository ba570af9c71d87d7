"""Trains the router and its experts on the phrases of `router_texts.py`; takes 40 seconds on one core.

Writes ``weights/*.safetensors``. Prints how well they do on phrases that they have not seen.
"""

import torch
from router_minilm import MiniLM, Tokenizer, load_minilm, load_words
from router_nets import WEIGHTS, Expert
from router_texts import INTENTS, TOPICS, Question, draw_questions
from safetensors.torch import save_file
from torch import Tensor, nn

NUM_EPOCHS = 6


def main() -> None:
    """Trains, saves and judges."""
    torch.set_num_threads(1)
    tokenizer, minilm, words = Tokenizer(), load_minilm(), load_words()
    trained, held_out = draw_questions(16, seed=0, is_held_out=False), draw_questions(8, seed=1, is_held_out=True)
    centroids = find_centroids(minilm, tokenizer, trained)
    experts = {topic: train_expert(topic, tokenizer, words, trained) for topic in TOPICS}
    WEIGHTS.mkdir(exist_ok=True)
    save_file({"centroids": centroids}, WEIGHTS / "centroids.safetensors")
    for topic, expert in experts.items():
        save_file(expert.state_dict(), WEIGHTS / f"{topic}.safetensors")
    judge(minilm, centroids, experts, tokenizer, held_out)


@torch.inference_mode()
def find_centroids(minilm: MiniLM, tokenizer: Tokenizer, questions: list[Question]) -> Tensor:
    """Returns for each topic the mean embedding of some of its questions, with length 1."""
    texts = [[question.text for question in questions if question.topic == topic][:48] for topic in TOPICS]
    means = [minilm(_tokens(tokenizer, each)).mean(dim=0) for each in texts]
    return nn.functional.normalize(torch.stack(means), dim=1)


def train_expert(topic: str, tokenizer: Tokenizer, words: Tensor, questions: list[Question]) -> Expert:
    """Trains with Adam on the topic's own questions, in shuffled batches."""
    own = [question for question in questions if question.topic == topic]
    tokens = _tokens(tokenizer, [question.text for question in own])
    targets = torch.tensor([INTENTS[topic].index(question.intent) for question in own])
    torch.manual_seed(0)
    expert = Expert(len(INTENTS[topic]), words)
    optimizer = torch.optim.Adam(expert.parameters(), lr=1e-3)
    expert.train()
    for _ in range(NUM_EPOCHS):
        for batch in torch.randperm(len(own)).split(32):
            loss = nn.functional.cross_entropy(expert(tokens[batch]), targets[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return expert.eval()


@torch.inference_mode()
def judge(minilm: MiniLM, centroids: Tensor, experts: dict[str, Expert], tokenizer: Tokenizer, questions: list[Question]) -> None:
    """Evaluates on phrases that were held out."""
    tokens = _tokens(tokenizer, [question.text for question in questions])
    routed = [TOPICS[int(at)] for at in (minilm(tokens) @ centroids.T).argmax(dim=1)]
    is_routed = [topic == question.topic for topic, question in zip(routed, questions, strict=True)]
    print(f"held-out accuracy on {len(questions)} questions:")
    print(f"  router     {sum(is_routed) / len(questions):.1%}")
    for topic, expert in experts.items():
        own = [at for at, question in enumerate(questions) if question.topic == topic]
        predicted = [INTENTS[topic][int(at)] for at in expert(tokens[own]).argmax(dim=1)]
        is_right = [intent == questions[at].intent for intent, at in zip(predicted, own, strict=True)]
        print(f"  {topic:<10} {sum(is_right) / len(own):.1%}")


def _tokens(tokenizer: Tokenizer, texts: list[str]) -> Tensor:
    return torch.tensor([tokenizer(text) for text in texts])


if __name__ == "__main__":
    main()
