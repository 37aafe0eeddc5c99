#pragma once

#include <fmt/format.h>

#include <string>

#include "base/file.h"

namespace hearth {

inline constexpr const char* kTinyTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Writes config.json of a Llama of two layers and a tokenizer with a token per printable character, ids from
/// 0 for ' ', 95 for the line's end, then <s>, </s>, <|im_start|> and <|im_end|>.
inline void write_tiny_model(const fs::path& folder, int num_tokens = 100) {
  fs::create_directories(folder);
  const auto put = [&](const char* name, const std::string& text) {
    write_file_atomically(folder / name, text);
  };
  put("config.json",
      fmt::format(R"({{"model_type": "llama", "vocab_size": {}, "hidden_size": 16, "intermediate_size": 24,
"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512,
"rms_norm_eps": 1e-5, "initializer_range": 0.2, "eos_token_id": 97}})",
                  num_tokens));
  std::string vocab;
  for (int c = 32; c < 127; ++c)
    vocab += fmt::format("\"{}{}\": {}, ", c == '"' || c == '\\' ? "\\" : "", static_cast<char>(c), c - 32);
  std::string added;
  int id = 96;
  for (const char* token : {"<s>", "</s>", "<|im_start|>", "<|im_end|>"}) {
    added += fmt::format(R"({}{{"id": {}, "content": "{}", "special": true, "normalized": false}})",
                         added.empty() ? "" : ", ", id++, token);
  }
  put("tokenizer.json", fmt::format(
                            R"({{"added_tokens": [{}], "decoder": {{"type": "Fuse"}},
"model": {{"type": "BPE", "vocab": {{{}"\n": 95}}, "merges": []}}}})",
                            added, vocab));
  put("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  put("chat_template.jinja", kTinyTemplate);
}

/// A line of JSON with a conversation of two turns.
inline std::string chat_line(const std::string& user, const std::string& assistant) {
  return fmt::format(
      R"({{"messages": [{{"role": "user", "content": "{}"}}, {{"role": "assistant", "content": "{}"}}]}})"
      "\n",
      user, assistant);
}

/// A line of JSON with two answers to a question.
inline std::string preference_line(const std::string& prompt, const std::string& chosen,
                                   const std::string& rejected) {
  return fmt::format(R"({{"prompt": "{}", "chosen": "{}", "rejected": "{}"}})"
                     "\n",
                     prompt, chosen, rejected);
}

}  // namespace hearth
