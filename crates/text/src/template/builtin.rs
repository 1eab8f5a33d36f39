//! Built-in chat templates by name, such as `chatml`, for model files without a template.
//!
//! They support system, user and assistant messages.

/// The formats: name and template.
pub const BUILTIN_TEMPLATES: &[(&str, &str)] = &[
    ("alpaca", ALPACA),
    ("chatml", CHATML),
    ("command-r", COMMAND_R),
    ("deepseek", DEEPSEEK),
    ("gemma", GEMMA),
    ("glm4", GLM4),
    ("granite", GRANITE),
    ("llama2", LLAMA2),
    ("llama3", LLAMA3),
    ("mistral", MISTRAL),
    ("phi3", PHI3),
    ("vicuna", VICUNA),
    ("zephyr", ZEPHYR),
];

/// The template of a format.
pub fn builtin_template(name: &str) -> Option<&'static str> {
    BUILTIN_TEMPLATES.iter().find(|(known, _)| *known == name).map(|(_, source)| *source)
}

const ALPACA: &str = "\
{%- for m in messages -%}
{%- if m.role == 'system' %}{{ m.content + '\\n\\n' }}
{%- elif m.role == 'user' %}{{ '### Instruction:\\n' + m.content + '\\n\\n' }}
{%- else %}{{ '### Response:\\n' + m.content + eos_token + '\\n\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}";

const CHATML: &str = "\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

const COMMAND_R: &str = "\
{{- bos_token }}
{%- set names = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'} %}
{%- for m in messages %}
{{- '<|START_OF_TURN_TOKEN|><|' + names[m.role] + '_TOKEN|>' + m.content | trim + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}";

const DEEPSEEK: &str = "\
{{- bos_token }}
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content }}
{%- elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}
{%- else %}{{ '<｜Assistant｜>' + m.content + eos_token }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}";

// The format has no place for a system message: it leads the first user's.
const GEMMA: &str = "\
{{- bos_token }}
{%- set ns = namespace(lead='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.lead = ns.lead + m.content | trim + '\\n\\n' %}
{%- else %}
{{- '<start_of_turn>' + ('model' if m.role == 'assistant' else 'user') + '\\n' }}
{{- ns.lead + m.content | trim + '<end_of_turn>\\n' }}
{%- set ns.lead = '' %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

const GLM4: &str = "\
{{- '[gMASK]<sop>' }}
{%- for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

const GRANITE: &str = "\
{%- for m in messages %}
{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content + '<|end_of_text|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' }}{% endif %}";

const LLAMA2: &str = "\
{%- set ns = namespace(lead='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.lead = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}
{%- elif m.role == 'user' %}{{ bos_token + '[INST] ' + ns.lead + m.content | trim + ' [/INST]' }}
{%- set ns.lead = '' %}
{%- else %}{{ ' ' + m.content | trim + ' ' + eos_token }}
{%- endif %}
{%- endfor %}";

const LLAMA3: &str = "\
{{- bos_token }}
{%- for m in messages %}
{{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

const MISTRAL: &str = "\
{{- bos_token }}
{%- set ns = namespace(lead='') %}
{%- for m in messages %}
{%- if m.role == 'system' %}{% set ns.lead = m.content + '\\n\\n' %}
{%- elif m.role == 'user' %}{{ '[INST] ' + ns.lead + m.content + ' [/INST]' }}
{%- set ns.lead = '' %}
{%- else %}{{ ' ' + m.content + eos_token }}
{%- endif %}
{%- endfor %}";

const PHI3: &str = "\
{%- for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

const VICUNA: &str = "\
{%- for m in messages %}
{%- if m.role == 'system' %}{{ m.content + '\\n\\n' }}
{%- elif m.role == 'user' %}{{ 'USER: ' + m.content + '\\n' }}
{%- else %}{{ 'ASSISTANT: ' + m.content + eos_token + '\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}";

const ZEPHYR: &str = "\
{%- for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::template::{ChatTemplate, Message, RenderInput};

    fn rendered(name: &str) -> String {
        let template = ChatTemplate::new(builtin_template(name).unwrap(), Some("<s>"), Some("</s>")).unwrap();
        let messages = [("system", "Be."), ("user", "1"), ("assistant", "2"), ("user", "3")];
        let messages = messages.map(|(role, text)| Message::new(role, text)).to_vec();
        let input = RenderInput { messages, add_generation_prompt: true, ..RenderInput::default() };
        template.render(&input).unwrap().replace('\n', "⏎")
    }

    #[test]
    fn formats_print_their_markup() {
        for (name, expected) in [
            ("alpaca", "Be.⏎⏎### Instruction:⏎1⏎⏎### Response:⏎2</s>⏎⏎### Instruction:⏎3⏎⏎### Response:⏎"),
            (
                "chatml",
                "<|im_start|>system⏎Be.<|im_end|>⏎<|im_start|>user⏎1<|im_end|>⏎<|im_start|>assistant⏎2<|im_end|>⏎\
                 <|im_start|>user⏎3<|im_end|>⏎<|im_start|>assistant⏎",
            ),
            (
                "command-r",
                "<s><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be.<|END_OF_TURN_TOKEN|>\
                 <|START_OF_TURN_TOKEN|><|USER_TOKEN|>1<|END_OF_TURN_TOKEN|>\
                 <|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>2<|END_OF_TURN_TOKEN|>\
                 <|START_OF_TURN_TOKEN|><|USER_TOKEN|>3<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
            ),
            ("deepseek", "<s>Be.<｜User｜>1<｜Assistant｜>2</s><｜User｜>3<｜Assistant｜>"),
            (
                "gemma",
                "<s><start_of_turn>user⏎Be.⏎⏎1<end_of_turn>⏎<start_of_turn>model⏎2<end_of_turn>⏎\
                 <start_of_turn>user⏎3<end_of_turn>⏎<start_of_turn>model⏎",
            ),
            ("glm4", "[gMASK]<sop><|system|>⏎Be.<|user|>⏎1<|assistant|>⏎2<|user|>⏎3<|assistant|>⏎"),
            (
                "granite",
                "<|start_of_role|>system<|end_of_role|>Be.<|end_of_text|>⏎\
                 <|start_of_role|>user<|end_of_role|>1<|end_of_text|>⏎\
                 <|start_of_role|>assistant<|end_of_role|>2<|end_of_text|>⏎\
                 <|start_of_role|>user<|end_of_role|>3<|end_of_text|>⏎<|start_of_role|>assistant<|end_of_role|>",
            ),
            ("llama2", "<s>[INST] <<SYS>>⏎Be.⏎<</SYS>>⏎⏎1 [/INST] 2 </s><s>[INST] 3 [/INST]"),
            (
                "llama3",
                "<s><|start_header_id|>system<|end_header_id|>⏎⏎Be.<|eot_id|>\
                 <|start_header_id|>user<|end_header_id|>⏎⏎1<|eot_id|>\
                 <|start_header_id|>assistant<|end_header_id|>⏎⏎2<|eot_id|>\
                 <|start_header_id|>user<|end_header_id|>⏎⏎3<|eot_id|><|start_header_id|>assistant<|end_header_id|>⏎⏎",
            ),
            ("mistral", "<s>[INST] Be.⏎⏎1 [/INST] 2</s>[INST] 3 [/INST]"),
            (
                "phi3",
                "<|system|>⏎Be.<|end|>⏎<|user|>⏎1<|end|>⏎<|assistant|>⏎2<|end|>⏎<|user|>⏎3<|end|>⏎<|assistant|>⏎",
            ),
            ("vicuna", "Be.⏎⏎USER: 1⏎ASSISTANT: 2</s>⏎USER: 3⏎ASSISTANT:"),
            ("zephyr", "<|system|>⏎Be.</s>⏎<|user|>⏎1</s>⏎<|assistant|>⏎2</s>⏎<|user|>⏎3</s>⏎<|assistant|>⏎"),
        ] {
            assert_eq!(rendered(name), expected, "{name}");
        }
    }

    #[test]
    fn every_format_compiles() {
        for (name, source) in BUILTIN_TEMPLATES {
            assert!(ChatTemplate::new(source, None, None).is_ok(), "{name}");
        }
        assert_eq!(builtin_template("llama4000"), None);
    }
}
