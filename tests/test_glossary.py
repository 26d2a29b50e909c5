"""The glossary: complete, in both languages, and the links from a term's first use."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from docutils import nodes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "_ext"))

from quiet_parts import glossary  # noqa: E402
from quiet_parts.outline import read_outline  # noqa: E402

TERMS = glossary.read_terms(ROOT / "glossary.md")
CHAPTERS = [chapter["name"] for chapter in read_outline()["chapters"]]

# The terms of the two articles that the book grew out of, as they stand there. The
# first five are the entries of their dictionaries.
ARTICLES = """
트랜스포머 블록 · 레이어 정규화 · 피드포워드 네트워크 · 게이팅 메커니즘 · SiLU
가중치 · 과적합 · 기울기 · 기울기 소실 · 기울기 폭발 · 다운 프로젝션 · 다층 퍼셉트론
대형 언어 모델 · 데이터로더 · 드롭아웃 · 로짓 · 랭크 붕괴 · 메모리 대역폭
멀티헤드 어텐션 · 배치 · 배치 크기 · 배치 정규화 · 분산 · 사영 · 서브레이어
선형 결합 · 셀프 어텐션 · 소프트맥스 · 손실 · 순전파 · 스킵 연결 · 스케일과 시프트
스케일링 불변성 · 스트라이드 · 시그모이드 · 시퀀스 · 어텐션 · 어휘 사전
언어 모델 헤드 · 언임베딩 · 업 프로젝션 · 역전파 · 엡실론 · 옵티마이저
완전 연결 레이어 · 원소별 곱 · 원소별 덧셈 · 온도 · 웜업 · 위치 인코딩 · 위치 임베딩
윈도우 · 은닉 차원 · 은닉 팽창 차원 · 은닉 확장 차원 · 인과적 마스크 · 임베딩
임베딩 차원 · 자연어 처리 · 잔차 연결 · 제곱평균제곱근 · 초기화 · 추론 · 층 정규화
키-값 메모리 · 텐서 차원 · 토크나이저 · 토큰 · 토큰 임베딩 · 특징 벡터 · 트랜스포머
파라미터 · 패딩 · 편미분 · 편향 · 평균 중심화 · 학습률 · 학습률 스케줄 · 항등 경로
활성값 · 활성화 함수 · 생성 · BatchNorm · BPE · Dropout · FFN · GELU
Gradient Highway · Hadamard product · KV cache · LayerNorm · LLM · logits · MLP
Post-LN · Pre-LN · ReLU · residual connection · RMSNorm · RoPE · skip connection
SwiGLU · Swish · softmax · temperature · Top-k · Top-p · warm-up · 표준편차 · 잔차
정규화 · 정규화 기법
""".replace("\n", " · ").split(" · ")


@pytest.mark.parametrize("word", sorted({word.strip() for word in ARTICLES} - {""}))
def test_every_term_of_the_articles_is_there(word):
    keys = ("term", "korean", "text", "ours")
    found = [t for t in TERMS if any(holds(t.get(key, ""), word) for key in keys)]
    assert found, f"{word} is in no entry of the glossary"


def holds(text: str, word: str) -> bool:
    return word.lower().replace(" ", "") in text.lower().replace(" ", "")


@pytest.mark.parametrize("entry", TERMS, ids=lambda entry: entry["term"])
def test_entry_is_complete(entry):
    assert glossary.NEEDED <= entry.keys() <= glossary.KEYS
    assert entry.get("korean"), "no Korean"
    assert entry["text"].endswith("."), "no sentence"
    assert len(entry["text"]) <= 260, "one plain sentence is shorter"
    named = [*entry.get("only", ()), *entry.get("except", ())]
    named += [entry["chapter"]] if "chapter" in entry else []
    assert set(named) <= set(CHAPTERS)


def test_no_term_comes_twice_and_anchors_differ():
    names = [entry["term"].lower() for entry in TERMS]
    anchors = [glossary.anchor(entry) for entry in TERMS]
    assert len(set(names)) == len(names)
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_form_means_one_term_in_a_chapter(chapter):
    owner: dict[str, str] = {}
    for entry in TERMS:
        if chapter not in entry.get("only", [chapter]):
            continue
        if chapter in entry.get("except", ()):
            continue
        for form in glossary.forms(entry):
            folded = glossary.fold(form)
            assert owner.setdefault(folded, entry["term"]) == entry["term"], form


def test_forms_come_from_the_term_unless_they_are_given():
    assert glossary.forms({"term": "softmax"}) == ["softmax"]
    assert glossary.forms({"term": "batch norm (BatchNorm)"}) == [
        "batch norm",
        "BatchNorm",
    ]
    assert glossary.forms({"term": "weight", "forms": []}) == []


# First uses -------------------------------------------------------------------------

FEW = [
    {"term": "residual connection", "text": "A.", "forms": ["residual"]},
    {"term": "residual stream", "text": "B."},
    {"term": "Post-LN", "text": "C."},
    {"term": "batch", "text": "D."},
    {"term": "head (of a model)", "text": "E.", "forms": ["head"], "only": ["gpt"]},
    {"term": "block", "text": "F $x$.", "except": ["attention"]},
]


def links(text: str, chapter: str = "residual") -> list[tuple[str, str]]:
    pieces = glossary.FirstUses(FEW, chapter).pieces(text)
    assert "".join(p if isinstance(p, str) else p[0] for p in pieces) == text
    return [(p[0], p[1]["term"]) for p in pieces if not isinstance(p, str)]


def test_the_longest_form_wins_and_each_term_comes_once():
    found = links("The residual stream. A residual layer, the stream, a residual one.")
    assert found == [
        ("residual stream", "residual stream"),
        ("residual", "residual connection"),
    ]


def test_capitals_plurals_and_line_breaks():
    assert links("Batches of\nwords") == [("Batches", "batch")]
    assert links("the residual\n  streams") == [
        ("residual\n  streams", "residual stream")
    ]
    assert links("Residual") == [("Residual", "residual connection")]
    assert links("Post-LN and post-ln") == [("Post-LN", "Post-LN")]
    assert links("post-ln") == []


@pytest.mark.parametrize("text", ["batch-wise", "minibatch", "batch_size", "sub-batch"])
def test_parts_of_words_are_no_terms(text):
    assert links(text) == []


def test_a_word_may_mean_a_term_in_some_chapters_only():
    assert links("the head", "residual") == []
    assert links("the head", "gpt") == [("head", "head (of a model)")]
    assert links("a block", "attention") == []
    assert links("a block", "residual") == [("block", "block")]


def chapter() -> nodes.document:
    """A chapter in small: each kind of place in which a term may stand."""
    from docutils.utils import new_document

    document = new_document("chapters/05_residual")
    section = nodes.section()
    document += section
    section += nodes.title("", "The batch")
    section += nodes.paragraph("", "", nodes.emphasis("", "a batch", classes=[]))
    section[-1]["classes"].append("qp-badges")
    section += nodes.block_quote("", nodes.paragraph("", "batch"))
    code = nodes.container("", nodes.paragraph("", "batch"), nb_element="cell_code")
    section += code
    section += nodes.raw("", "<details><summary>Answer</summary>", format="html")
    section += nodes.paragraph("", "A batch in a fold.")
    section += nodes.raw("", "</details>", format="html")
    mixed = nodes.paragraph("", "")
    mixed += nodes.literal("", "batch")
    mixed += nodes.math("", "batch")
    mixed += nodes.reference("", "batch", refuri="x")
    mixed += nodes.Text(" and now the batch, a ")
    mixed += nodes.strong("", "block")
    mixed += nodes.Text(", a batch.")
    section += mixed
    return document


def test_only_the_first_use_in_visible_prose_is_linked(tmp_path):
    (tmp_path / "glossary.md").write_text(
        "```{terms}\n- {term: batch, text: Some windows.}\n"
        "- {term: block, text: A part with $x$.}\n```\n",
        "utf-8",
    )
    app = SimpleNamespace(
        srcdir=str(tmp_path),
        env=SimpleNamespace(found_docs={"glossary", "chapters/05_residual"}),
        builder=SimpleNamespace(
            format="html", get_relative_uri=lambda a, b: "../glossary.html"
        ),
    )
    document = chapter()
    before = document.astext()
    glossary.link_first_uses(app, document, "chapters/05_residual")
    assert document.astext() == before  # the words stay
    found = [n for n in document.findall(nodes.reference) if "qp-term" in n["classes"]]
    assert [n.astext() for n in found] == ["batch", "block"]
    assert [n["refuri"] for n in found] == [
        "../glossary.html#term-batch",
        "../glossary.html#term-block",
    ]
    assert found[0]["reftitle"] == "Some windows."
    assert not found[1].get("reftitle")  # a formula is no tooltip
    assert found[0].parent.index(found[0]) == 4  # after " and now the "
    assert isinstance(found[1].parent, nodes.strong)


def test_pages_that_are_no_chapters_are_left_alone():
    document = chapter()
    glossary.link_first_uses(SimpleNamespace(), document, "index")
    assert not [
        n for n in document.findall(nodes.reference) if "qp-term" in n["classes"]
    ]
