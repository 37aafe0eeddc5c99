#include "hub/export_gguf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "base/output.h"
#include "base/run_files.h"
#include "base/text.h"
#include "hub/gguf_parts.h"
#include "hub/model_weights.h"
#include "hub/weights.h"
#include "io/ggml_quantize.h"
#include "models/decoder/config.h"
#include "text/chat.h"
#include "text/ggml_vocabulary.h"

namespace hearth::hub {
namespace {

using io::GgufType;
using models::DecoderConfig;

constexpr uint32_t kQuantizationVersion = 2;

/// True if even layers (from 0) use sliding-window attention and odd ones full attention, as in Gemma 2.
bool windows_alternate(const DecoderConfig& config) {
  for (size_t i = 0; i < config.windows.size(); ++i) {
    if ((config.windows[i] > 0) != (i % 2 == 0)) return false;
  }
  return true;
}

int64_t window_of(const DecoderConfig& config) {
  return *std::max_element(config.windows.begin(), config.windows.end());
}

/// Throws a UserError if a value of a Gemma 2 model differs from what llama.cpp's code assumes.
void check_gemma(const DecoderConfig& config, const std::string& where) {
  if (config.attention_cap <= 0 || config.head_cap <= 0)
    user_error("{}: llama.cpp requires both soft caps for Gemma 2", where);
  if (!windows_alternate(config))
    user_error("{}: llama.cpp requires a sliding window in every other layer for Gemma 2", where);
  const auto head = static_cast<double>(gemma2_query_size(config));
  if (std::abs(config.attention_scale * std::sqrt(head) - 1) > 1e-6) {
    user_error("{}: llama.cpp requires query_pre_attn_scalar={} for Gemma 2 of this size, got {}", where,
               head, 1 / (config.attention_scale * config.attention_scale));
  }
}

void check_rope(const DecoderConfig& config, const std::string& where) {
  const models::RopeOptions& rope = config.rope;
  const char* owner = rope.type == "llama3" ? "llama" : rope.type == "longrope" ? "phi3" : "";
  const bool everywhere = rope.type == "default" || rope.type == "linear";
  if (!everywhere && gguf_architecture(config) != owner) {
    user_error("{}: llama.cpp supports rope_type default and linear for {}, got {}", where, config.family,
               rope.type);
  }
  if (rope.rotary_share != 1 && config.family != "phi3")
    user_error("{}: llama.cpp requires RoPE on full heads for {}, got a fraction of {}", where, config.family,
               rope.rotary_share);
}

void check_expressible(const DecoderConfig& config, const std::string& where) {
  if (std::ranges::find(kGgufFamilies, config.family) == kGgufFamilies.end()) {
    user_error("{}: expected a model_type that is exported as GGUF ({}), got '{}'; try --format hf", where,
               fmt::join(kGgufFamilies, ", "), config.family);
  }
  const std::string activation = config.family == "gemma2" ? "gelu_tanh" : "silu";
  if (config.activation != activation) {
    user_error("{}: llama.cpp requires the activation {} for {}, got {}", where, activation, config.family,
               config.activation);
  }
  if (config.family == "qwen3" && config.qkv_bias)
    user_error("{}: llama.cpp does not support attention_bias for qwen3", where);
  check_rope(config, where);
  if (config.family == "gemma2") check_gemma(config, where);
}

/// Returns the type of the embedding table and the head, which affect the output most, in a file of this
/// type.
GgufType table_type(GgufType wanted) {
  if (wanted == GgufType::q4_0 || wanted == GgufType::q5_0) return GgufType::q8_0;
  return wanted == GgufType::q4_K || wanted == GgufType::q5_K ? GgufType::q6_K : wanted;
}

/// Returns the type that replaces a block type for rows of another length, as in llama.cpp
/// (tensor_type_fallback).
GgufType fallback(GgufType type) {
  if (type == GgufType::q4_K) return GgufType::q5_0;
  if (type == GgufType::q5_K) return GgufType::q5_1;
  return type == GgufType::q6_K ? GgufType::q8_0 : GgufType::f16;
}

const io::GgufFormat& format_of(GgufType type) { return *io::find_gguf_format(static_cast<uint32_t>(type)); }

/// Returns the type of a tensor: f32 for vectors; otherwise `wanted`, table_type() or a fallback.
GgufType type_of(const io::GgufTensor& tensor, GgufType wanted) {
  if (tensor.shape.rank() < 2) return GgufType::f32;
  const bool is_table = tensor.name == kGgufEmbeddings || tensor.name == kGgufHead;
  GgufType type = is_table ? table_type(wanted) : wanted;
  while (tensor.shape.back() % format_of(type).block != 0) type = fallback(type);
  return type;
}

/// Returns a note for each type that replaces another one because of the length of rows.
std::vector<std::string> fallback_notes(const std::vector<io::GgufTensor>& tensors, GgufType wanted) {
  std::map<GgufType, int> counts;
  for (const io::GgufTensor& tensor : tensors) {
    if (tensor.shape.rank() > 1 && tensor.type != wanted && tensor.type != table_type(wanted))
      ++counts[tensor.type];
  }
  std::vector<std::string> notes;
  for (const auto& [type, count] : counts)
    notes.push_back(
        fmt::format("{} matrices are stored as {}, because {} needs rows of a multiple of {} elements", count,
                    format_of(type).name, format_of(wanted).name, format_of(wanted).block));
  return notes;
}

/// Returns llama.cpp's number of a file with this type of matrices (llama_ftype; Q4_K_S for q4_K).
uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q4_0:
      return 2;
    case GgufType::q8_0:
      return 7;
    case GgufType::q5_0:
      return 8;
    case GgufType::q4_K:
      return 14;
    case GgufType::q5_K:
      return 16;
    case GgufType::q6_K:
      return 18;
    case GgufType::bf16:
      return 32;
    default:
      break;
  }
  internal_error("no file type for {}", static_cast<uint32_t>(type));
}

/// Throws a UserError if the files lack a source tensor or have it with another shape, or if they have a
/// tensor that would not be exported.
void check_weights(const std::vector<GgufPart>& parts, const io::WeightFiles& files, const fs::path& folder) {
  std::set<std::string> used;
  for (const GgufPart& part : parts) {
    if (!part.values.empty()) continue;
    used.insert(part.source);
    const io::TensorView* found = files.find(part.source);
    if (found == nullptr) {
      user_error("{}: expected a tensor '{}' of the model{}", folder.string(), part.source,
                 did_you_mean(part.source, files.names()));
    }
    if (found->shape == part.target.shape && is_floating(found->dtype) && dtype_bytes(found->dtype) > 1)
      continue;
    user_error("{}: expected '{}' with shape {}, found shape {} and dtype {}", folder.string(), part.source,
               to_string(part.target.shape), to_string(found->shape), dtype_name(found->dtype));
  }
  check_leftovers(files, used, folder);
}

class Metadata {
 public:
  Metadata(const DecoderConfig& config, GgufType type, const std::string& name)
      : config_(config), arch_(gguf_architecture(config)) {
    values_ = {{"general.architecture", arch_},
               {"general.type", std::string("model")},
               {"general.name", name},
               {"general.file_type", file_type(type)},
               {"general.quantization_version", kQuantizationVersion}};
    add_sizes();
    add_rope();
  }

  void add_tokenizer(const ModelFolder& model) {
    const text::GgmlVocabulary vocabulary = text::ggml_vocabulary(model.text, config_.vocab_size);
    const std::string ggml = "tokenizer.ggml.";
    std::vector<int32_t> kinds;
    for (const auto kind : vocabulary.kinds) kinds.push_back(static_cast<int32_t>(kind));
    values_.emplace_back(ggml + "model", vocabulary.model);
    values_.emplace_back(ggml + "pre", vocabulary.pre);
    values_.emplace_back(ggml + "tokens", vocabulary.tokens);
    values_.emplace_back(ggml + "token_type", kinds);
    if (!vocabulary.scores.empty()) values_.emplace_back(ggml + "scores", vocabulary.scores);
    if (!vocabulary.merges.empty()) values_.emplace_back(ggml + "merges", vocabulary.merges);
    if (vocabulary.model == "llama")
      values_.emplace_back(ggml + "add_space_prefix", vocabulary.add_space_prefix);
    add_special(*text::open_tokenizer(model.text));
    if (const auto chat = text::read_chat_setup(model.text).chat_template)
      values_.emplace_back("tokenizer.chat_template", *chat);
  }
  const io::GgufMetadata& values() const { return values_; }

 private:
  void add(const std::string& key, io::GgufValue value) { values_.emplace_back(arch_ + "." + key, value); }
  void add(const std::string& key, int64_t value) { add(key, io::GgufValue(static_cast<uint32_t>(value))); }
  void add(const std::string& key, double value) { add(key, io::GgufValue(static_cast<float>(value))); }

  void add_sizes() {
    add("block_count", config_.num_layers);
    add("context_length", config_.max_positions);
    add("embedding_length", config_.hidden);
    add("feed_forward_length", config_.intermediate);
    add("vocab_size", config_.vocab_size);
    add("attention.head_count", config_.num_heads);
    add("attention.head_count_kv", config_.num_kv_heads);
    add("attention.layer_norm_rms_epsilon", config_.norm_eps);
    add("attention.key_length", config_.head_size);
    add("attention.value_length", config_.head_size);
    if (const int64_t window = window_of(config_); window > 0 || config_.family == "phi3")
      add("attention.sliding_window", window);
    if (config_.attention_cap > 0) add("attn_logit_softcapping", config_.attention_cap);
    if (config_.head_cap > 0) add("final_logit_softcapping", config_.head_cap);
  }

  void add_rope() {
    const models::RopeTable table = models::rope_table(config_.rope, config_.head_size);
    add("rope.dimension_count", 2 * std::ssize(table.inv_freq));
    add("rope.freq_base", config_.rope.theta);
    if (config_.rope.type == "linear") {
      add("rope.scaling.type", io::GgufValue(std::string("linear")));
      add("rope.scaling.factor", config_.rope.factor);
    }
    if (config_.family == "phi3")
      add("rope.scaling.original_context_length", config_.rope.original_positions);
    if (config_.rope.type == "longrope") add("rope.scaling.attn_factor", table.scale);
  }

  void add_special(const text::Tokenizer& tokenizer) {
    const text::SpecialIds& special = tokenizer.special();
    const auto add_id = [&](const char* role, std::optional<int32_t> id) {
      if (id)
        values_.emplace_back(fmt::format("tokenizer.ggml.{}_token_id", role), static_cast<uint32_t>(*id));
    };
    std::optional<int32_t> eos = special.eos;
    if (!eos && !config_.eos_ids.empty()) eos = static_cast<int32_t>(config_.eos_ids[0]);
    add_id("bos", special.bos);
    add_id("eos", eos);
    add_id("unknown", special.unk);
    add_id("padding", special.pad);
    const auto holds = [](const std::vector<int32_t>& ids, std::optional<int32_t> id) {
      return id && std::ranges::find(ids, *id) != ids.end();
    };
    values_.emplace_back("tokenizer.ggml.add_bos_token", holds(special.prefix, special.bos));
    values_.emplace_back("tokenizer.ggml.add_eos_token", holds(special.suffix, special.eos));
  }

  const DecoderConfig& config_;
  std::string arch_;
  io::GgufMetadata values_;
};

RowEncoding encoding_of(const GgufPart& part) {
  const GgufType type = part.target.type;
  RowEncoding encoding = row_encoding(type == GgufType::f16    ? DType::f16
                                      : type == GgufType::bf16 ? DType::bf16
                                                               : DType::f32,
                                      part.target.shape.back());
  if (io::is_written_in_blocks(type)) {
    encoding = {
        .row_bytes = io::gguf_row_bytes(type, part.target.shape.back()),
        .max_magnitude = io::max_magnitude(type),
        .write = [type](std::span<float> values, std::byte* out) { io::quantize_gguf(type, values, out); }};
  }
  if (part.heads > 0 && part.target.shape.rank() == 2) {
    encoding.target_row = [rows = part.target.shape[0], heads = part.heads](int64_t row) {
      return interleaved_row(row, rows, heads);
    };
  } else if (part.heads > 0 || part.offset != 0) {
    // ModelWeights passes a vector as one row of f32; adds the offset and reorders its elements.
    encoding.write = [&part](std::span<float> values, std::byte* out) {
      const int64_t count = std::ssize(values);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t target_row = part.heads > 0 ? interleaved_row(i, count, part.heads) : i;
        const float value = values[static_cast<size_t>(i)] + part.offset;
        std::memcpy(out + target_row * 4, &value, sizeof value);
      }
    };
  }
  return encoding;
}

}  // namespace

std::vector<std::string> gguf_notes(const DecoderConfig& config) {
  std::vector<std::string> notes;
  // llama.cpp applies the sliding window of Gemma 2, but of no other family that is exported.
  const int64_t window = config.family == "gemma2" ? 0 : window_of(config);
  if (window > 0 && window < config.max_positions)
    notes.push_back(fmt::format(
        "llama.cpp ignores the sliding window of {} tokens of this model and attends to all tokens", window));
  if (config.rope.type == "longrope") {
    notes.push_back(
        fmt::format("llama.cpp uses the long RoPE factors of this model if its context (-c) is above {} "
                    "tokens and otherwise the short ones, regardless of the length of the text; transformers "
                    "selects them by that length",
                    config.rope.original_positions));
  }
  return notes;
}

GgufResult export_gguf(const ModelFolder& model, const GgufOptions& options) {
  if (fs::is_directory(options.out))
    user_error("expected a file to write, got the folder '{}'; try --out {}/model.gguf", options.out.string(),
               options.out.string());
  check_writable_file(options.out);
  const fs::path file = model.model / kModelConfig;
  const DecoderConfig config = models::read_decoder_config(file);
  check_expressible(config, file.string());
  ModelWeights weights(model, options.num_threads);
  std::vector<GgufPart> parts = gguf_parts(config);
  check_weights(parts, weights.files(), model.model);
  const fs::path& named = model.adapter.empty() ? model.model : model.adapter;
  Metadata metadata(config, options.type, fs::canonical(named).filename().string());
  metadata.add_tokenizer(model);
  std::vector<io::GgufTensor> tensors;
  for (GgufPart& part : parts) {
    part.target.type = type_of(part.target, options.type);
    tensors.push_back(part.target);
  }
  const auto bytes_of = [&](size_t i) {
    const GgufPart& part = parts[i];
    if (!part.values.empty()) return std::as_bytes(std::span(part.values));
    return weights.encoded(*weights.files().find(part.source), encoding_of(part));
  };
  replace_file(options.out,
               [&](const fs::path& path) { io::write_gguf(path, metadata.values(), tensors, bytes_of); });
  GgufResult result{
      .num_changed = weights.num_changed(), .num_tensors = std::ssize(tensors), .notes = gguf_notes(config)};
  std::ranges::move(fallback_notes(tensors, options.type), std::back_inserter(result.notes));
  return result;
}

}  // namespace hearth::hub
