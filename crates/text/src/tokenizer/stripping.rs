//! Special tokens that strip the white space beside them (`lstrip`, `rstrip`). GGUF does not store
//! this, so the models are recognised by name.

use super::{TokenType, TokenizerSpec};

/// Tokens of Phi-3 that leave white space alone.
const KEPT: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

impl TokenizerSpec {
    /// Fills in [`left_stripping`](Self::left_stripping) and
    /// [`right_stripping`](Self::right_stripping) as a model of this name and architecture needs
    /// them; the tokens, their types and `pre` are filled in before.
    pub fn mark_stripping(&mut self, name: &str, architecture: &str) {
        let name = name.to_ascii_lowercase();
        if self.pre.starts_with("jina-v2-") || ["nomic-bert-moe", "jina-bert-v3"].contains(&architecture) {
            self.left_stripping = self.ids_where(|_, text| text == "<mask>");
        } else if name.contains("modern-bert") {
            self.left_stripping = self.ids_where(|_, text| text == "[MASK]");
        } else if name.contains("phi-3") || name.contains("phi3") {
            let plain = |id| matches!(self.token_type(id), TokenType::Normal | TokenType::Byte);
            self.right_stripping =
                self.ids_where(|id, text| text == "</s>" || !plain(id) && !KEPT.contains(&text));
        }
    }

    fn ids_where(&self, wanted: impl Fn(usize, &str) -> bool) -> Vec<u32> {
        let tokens = self.tokens.iter().enumerate().filter(|(id, text)| wanted(*id, text));
        tokens.map(|(id, _)| id as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(pre: &str, name: &str, architecture: &str) -> [Vec<u32>; 2] {
        let mut spec = TokenizerSpec { pre: pre.to_owned(), ..TokenizerSpec::default() };
        let control = TokenType::Control;
        for (text, kind) in [
            ("<s>", control),
            ("</s>", TokenType::Normal),
            ("<mask>", control),
            ("[MASK]", control),
            ("a", TokenType::Normal),
            ("<0x00>", TokenType::Byte),
            ("<|own|>", TokenType::UserDefined),
        ] {
            spec.push_token(text, kind);
        }
        spec.mark_stripping(name, architecture);
        [spec.left_stripping, spec.right_stripping]
    }

    #[test]
    fn models_are_known_by_name() {
        let none: [Vec<u32>; 2] = [vec![], vec![]];
        assert_eq!(marked("qwen2", "Qwen", "qwen2"), none);
        assert_eq!(marked("jina-v2-de", "", ""), [vec![2], vec![]]);
        assert_eq!(marked("default", "", "nomic-bert-moe"), [vec![2], vec![]]);
        assert_eq!(marked("default", "my Modern-BERT", "bert"), [vec![3], vec![]]);
        for name in ["Phi-3 mini", "phi3"] {
            assert_eq!(marked("default", name, "phi3"), [vec![], vec![1, 2, 3, 6]]);
        }
    }
}
