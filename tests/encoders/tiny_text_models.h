#pragma once

#include <fmt/format.h>

#include "tiny_weights.h"

namespace hearth::encoders {

inline void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_file_atomically(file, text);
}

/// Words a to j are ids 3 to 12, after <pad>, </s> and <unk>.
inline void put_tokenizer(const fs::path& folder,
                          const char* config = R"({"pad_token": "<pad>", "eos_token": "</s>"})") {
  std::string vocab = R"("<pad>": 0, "</s>": 1, "<unk>": 2)";
  for (char c = 'a'; c <= 'j'; ++c) vocab += fmt::format(", \"{}\": {}", c, c - 'a' + 3);
  put(folder / "tokenizer.json",
      fmt::format(R"({{"added_tokens": [{{"id": 0, "content": "<pad>", "special": true}},
{{"id": 1, "content": "</s>", "special": true}}], "pre_tokenizer": {{"type": "Whitespace"}},
"post_processor": {{"type": "TemplateProcessing", "single": [{{"Sequence": {{"id": "A", "type_id": 0}}}},
{{"SpecialToken": {{"id": "</s>", "type_id": 0}}}}],
"special_tokens": {{"</s>": {{"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}}}},
"model": {{"type": "WordLevel", "unk_token": "<unk>", "vocab": {{{}}}}}}})",
                  vocab));
  put(folder / "tokenizer_config.json", config);
}

inline void put_clip(const fs::path& folder) {
  put(folder / "config.json", R"({"model_type": "clip_text_model", "vocab_size": 13, "hidden_size": 8,
"intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 6,
"eos_token_id": 1})");
  TinyWeights weights;
  weights.add("text_model.embeddings.token_embedding.weight", {13, 8}, 1);
  weights.add("text_model.embeddings.position_embedding.weight", {6, 8}, 1);
  for (const char* layer : {"text_model.encoder.layers.0.", "text_model.encoder.layers.1."}) {
    const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
      weights.add(layer + name + ".weight", {out, in}, 0.5F);
      weights.add(layer + name + ".bias", {out}, 0.5F);
    };
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(std::string("self_attn.") + name, 8, 8);
    linear("mlp.fc1", 12, 8);
    linear("mlp.fc2", 8, 12);
    for (const char* norm : {"layer_norm1", "layer_norm2"}) {
      weights.add(layer + std::string(norm) + ".weight", {8}, 1);
      weights.add(layer + std::string(norm) + ".bias", {8}, 1);
    }
  }
  weights.add("text_model.final_layer_norm.weight", {8}, 1);
  weights.add("text_model.final_layer_norm.bias", {8}, 1);
  weights.write(folder / "model.safetensors");
}

inline constexpr int64_t kHeads = 4;

/// A layer has 4 width^2 + 12 width^2 weights. `last`: the scale of the last layer's second norm.
inline void put_t5(const fs::path& folder, int64_t width, int64_t num_layers, float last = 1) {
  put(folder / "config.json",
      fmt::format(R"({{"model_type": "t5", "vocab_size": 13, "d_model": {0}, "d_kv": {1}, "d_ff": {2},
"num_layers": {3}, "num_heads": 4, "feed_forward_proj": "gated-gelu"}})",
                  width, width / kHeads, 4 * width, num_layers));
  TinyWeights weights;
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  weights.add("shared.weight", {13, width}, 1);
  for (int64_t i = 0; i < num_layers; ++i) {
    const std::string attention = fmt::format("encoder.block.{}.layer.0.", i);
    const std::string mlp = fmt::format("encoder.block.{}.layer.1.", i);
    for (const char* name : {"q", "k", "v", "o"})
      weights.add(attention + "SelfAttention." + name + ".weight", {width, width}, scale);
    if (i == 0) weights.add(attention + "SelfAttention.relative_attention_bias.weight", {32, kHeads}, 1);
    weights.add(attention + "layer_norm.weight", {width}, 1);
    for (const char* name : {"wi_0", "wi_1"})
      weights.add(mlp + "DenseReluDense." + name + ".weight", {4 * width, width}, scale);
    weights.add(mlp + "DenseReluDense.wo.weight", {width, 4 * width}, scale);
    weights.add(mlp + "layer_norm.weight", {width}, i == num_layers - 1 ? last : 1);
  }
  weights.add("encoder.final_layer_norm.weight", {width}, 1);
  weights.write(folder / "model.safetensors");
}

inline constexpr const char* kIndex = R"({"text_encoder": ["transformers", "CLIPTextModel"],
"text_encoder_2": ["transformers", "T5EncoderModel"]})";

inline void put_models(const fs::path& folder, int64_t width, int64_t num_layers) {
  put(folder / "model_index.json", kIndex);
  put_tokenizer(folder / "tokenizer");
  put_tokenizer(folder / "tokenizer_2");
  put_clip(folder / "text_encoder");
  put_t5(folder / "text_encoder_2", width, num_layers);
}

}  // namespace hearth::encoders
