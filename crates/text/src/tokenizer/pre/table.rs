//! The table of pre-tokenizers by name.

use super::rules::{self, Pass};
use crate::TokenizerError;

/// One name of a pre-tokenizer and what it stands for.
#[derive(Debug, Clone, Copy)]
pub struct PreTokenizerInfo {
    /// The name, as the key `tokenizer.ggml.pre` has it.
    pub name: &'static str,
    /// Whether a word that is a token is taken whole, whatever the merges would make of it.
    pub whole_words: bool,
    /// Whether encoding with specials begins with BOS where the vocabulary does not say.
    pub adds_bos: bool,
    /// Whether text is composed (Unicode's normalisation form C) before it is cut.
    pub composes: bool,
    /// How token texts are written.
    pub alphabet: Alphabet,
    /// Where the published tokenizer, which this follows, cuts text otherwise than llama.cpp; empty
    /// if nowhere.
    pub unlike_llama_cpp: &'static str,
    pub(super) passes: &'static [Pass],
}

/// How the token texts of a vocabulary with merges are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// Bytes in GPT-2's printable alphabet.
    Bytes,
    /// Characters, with U+2581 for a space and `<0xHH>` for the bytes of what is no token.
    Marked,
}

impl PreTokenizerInfo {
    /// The row of `name`.
    ///
    /// # Errors
    ///
    /// [`TokenizerError::UnknownPre`], which tells the known names.
    pub fn named(name: &str) -> Result<&'static Self, TokenizerError> {
        PRE_TOKENIZERS.iter().find(|info| info.name == name).ok_or_else(|| {
            let names: Vec<&str> = PRE_TOKENIZERS.iter().map(|info| info.name).collect();
            TokenizerError::UnknownPre { name: name.to_owned(), supported: names.join(", ") }
        })
    }

    const fn new(name: &'static str, passes: &'static [Pass]) -> Self {
        Self {
            name,
            whole_words: false,
            adds_bos: false,
            composes: false,
            alphabet: Alphabet::Bytes,
            unlike_llama_cpp: "",
            passes,
        }
    }

    const fn whole_words(self) -> Self {
        Self { whole_words: true, ..self }
    }

    const fn adds_bos(self) -> Self {
        Self { adds_bos: true, ..self }
    }

    const fn composes(self) -> Self {
        Self { composes: true, ..self }
    }

    const fn unlike_llama_cpp(self, unlike_llama_cpp: &'static str) -> Self {
        Self { unlike_llama_cpp, ..self }
    }

    const fn written_in(self, alphabet: Alphabet) -> Self {
        Self { alphabet, ..self }
    }
}

const MARKS: &str = "combining marks belong to words, and upper and lower case are those of Unicode";
const CASES: &str = "upper case begins a new word";
const DIGITS: &str = "upper case begins a new word; digits before a letter are grouped from the left";
const WIDE_SPACES: &str =
    "white space from U+1680 to U+3000 counts as a Han letter, as the published range has it";

/// Every known name. Several stand for the same rules.
pub const PRE_TOKENIZERS: &[PreTokenizerInfo] = &[
    PreTokenizerInfo::new("default", rules::DEFAULT),
    PreTokenizerInfo::new("gpt-2", rules::GPT2),
    PreTokenizerInfo::new("phi-2", rules::GPT2),
    PreTokenizerInfo::new("jina-es", rules::GPT2),
    PreTokenizerInfo::new("jina-de", rules::GPT2),
    PreTokenizerInfo::new("jina-v2-es", rules::GPT2),
    PreTokenizerInfo::new("jina-v2-de", rules::GPT2),
    PreTokenizerInfo::new("jina-v1-en", rules::GPT2),
    PreTokenizerInfo::new("jina-v2-code", rules::GPT2),
    PreTokenizerInfo::new("roberta-bpe", rules::GPT2),
    PreTokenizerInfo::new("gigachat", rules::GPT2),
    PreTokenizerInfo::new("a.x-4.0", rules::GPT2),
    PreTokenizerInfo::new("mellum", rules::GPT2),
    PreTokenizerInfo::new("modern-bert", rules::GPT2).composes(),
    PreTokenizerInfo::new("exaone4", rules::GPT2),
    PreTokenizerInfo::new("mpt", rules::GPT2).composes(),
    PreTokenizerInfo::new("olmo", rules::GPT2).composes(),
    PreTokenizerInfo::new("jais", rules::GPT2),
    PreTokenizerInfo::new("trillion", rules::GPT2),
    PreTokenizerInfo::new("granite-docling", rules::GPT2),
    PreTokenizerInfo::new("starcoder", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("refact", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("command-r", rules::NUMBERS_THEN_GPT2).composes(),
    PreTokenizerInfo::new("smollm", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("codeshell", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("exaone", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("minerva-7b", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("mellum2", rules::NUMBERS_THEN_GPT2),
    PreTokenizerInfo::new("falcon", rules::FALCON),
    PreTokenizerInfo::new("llama3", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("llama-v3", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("llama-bpe", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("falcon3", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("falcon-h1", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("pixtral", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("midm-2.0", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("lfm2", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("jina-v5-nano", rules::LLAMA3).whole_words().adds_bos(),
    PreTokenizerInfo::new("dbrx", rules::LLAMA3),
    PreTokenizerInfo::new("smaug-bpe", rules::LLAMA3),
    PreTokenizerInfo::new("chatglm-bpe", rules::LLAMA3),
    PreTokenizerInfo::new("glm4", rules::LLAMA3).whole_words(),
    PreTokenizerInfo::new("glm5", rules::LLAMA3).whole_words(),
    PreTokenizerInfo::new("qwen2", rules::QWEN2).composes(),
    PreTokenizerInfo::new("stablelm2", rules::QWEN2).composes(),
    PreTokenizerInfo::new("deepseek-r1-qwen", rules::QWEN2).composes(),
    PreTokenizerInfo::new("kormo", rules::QWEN2),
    PreTokenizerInfo::new("f2llmv2", rules::QWEN2).composes(),
    PreTokenizerInfo::new("megrez", rules::QWEN2),
    PreTokenizerInfo::new("hunyuan", rules::QWEN2),
    PreTokenizerInfo::new("solar-open", rules::QWEN2),
    PreTokenizerInfo::new("grok-2", rules::QWEN2),
    PreTokenizerInfo::new("qwen35", rules::QWEN35).composes(),
    PreTokenizerInfo::new("ufakzeka", rules::UFAKZEKA),
    PreTokenizerInfo::new("seed-coder", rules::SEED_CODER),
    PreTokenizerInfo::new("bailingmoe", rules::BAILING_MOE),
    PreTokenizerInfo::new("bailingmoe2", rules::BAILING_MOE),
    PreTokenizerInfo::new("llada-moe", rules::BAILING_MOE),
    PreTokenizerInfo::new("exaone-moe", rules::EXAONE_MOE),
    PreTokenizerInfo::new("minicpm5", rules::MINICPM5).whole_words(),
    PreTokenizerInfo::new("jais-2", rules::JAIS2),
    PreTokenizerInfo::new("laguna", rules::LAGUNA),
    PreTokenizerInfo::new("tekken", rules::TEKKEN).whole_words().adds_bos().unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("gpt-4o", rules::GPT_4O).unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("llama4", rules::GPT_4O).unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("kanana2", rules::GPT_4O).unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("talkie", rules::GPT_4O).unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("minimax-m2", rules::GPT_4O).unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("granite-embed-multi-97m", rules::GPT_4O).whole_words().unlike_llama_cpp(MARKS),
    PreTokenizerInfo::new("tiny_aya", rules::TINY_AYA).unlike_llama_cpp(DIGITS),
    PreTokenizerInfo::new("cohere2moe", rules::TINY_AYA).unlike_llama_cpp(DIGITS),
    PreTokenizerInfo::new("youtu", rules::YOUTU).whole_words().unlike_llama_cpp(CASES),
    PreTokenizerInfo::new("kimi-k2", rules::KIMI_K2),
    PreTokenizerInfo::new("deepseek-llm", rules::DEEPSEEK_LLM).unlike_llama_cpp(WIDE_SPACES),
    PreTokenizerInfo::new("deepseek-coder", rules::DEEPSEEK_CODER).unlike_llama_cpp(WIDE_SPACES),
    PreTokenizerInfo::new("deepseek-v3", rules::DEEPSEEK_V3),
    PreTokenizerInfo::new("hunyuan-dense", rules::DEEPSEEK_V3),
    PreTokenizerInfo::new("joyai-llm", rules::DEEPSEEK_V3),
    PreTokenizerInfo::new("hy_v4", rules::DEEPSEEK_V3),
    PreTokenizerInfo::new("spark2_5", rules::SPARK),
    PreTokenizerInfo::new("afmoe", rules::AFMOE),
    PreTokenizerInfo::new("superbpe", rules::SUPERBPE),
    PreTokenizerInfo::new("bloom", rules::BLOOM),
    PreTokenizerInfo::new("poro-chat", rules::BLOOM),
    PreTokenizerInfo::new("gpt3-finnish", rules::BLOOM),
    PreTokenizerInfo::new("viking", rules::VIKING),
    PreTokenizerInfo::new("chameleon", rules::CHAMELEON).adds_bos(),
    PreTokenizerInfo::new("gemma4", rules::LINES).adds_bos().written_in(Alphabet::Marked),
    PreTokenizerInfo::new("granite-embed-multi-311m", rules::LINES).adds_bos().written_in(Alphabet::Marked),
    PreTokenizerInfo::new("sarvam-moe", rules::LINES).written_in(Alphabet::Marked),
];
