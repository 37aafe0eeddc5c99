// Creates the config of a GGUF model. An f32 is written with the shortest decimal digits that identify it, so
// that the numbers equal those of the original config.json.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "hub/floats.h"
#include "hub/gguf_model.h"
#include "hub/gguf_parts.h"
#include "models/torch_dtype.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

/// Max relative difference of computed and stored RoPE factors, which are rounded to f32.
constexpr double kMaxRopeError = 1e-5;

struct ClassName {
  const char* family;
  const char* name;
};
constexpr ClassName kClassNames[] = {{"llama", "LlamaForCausalLM"}, {"mistral", "MistralForCausalLM"},
                                     {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"},
                                     {"phi3", "Phi3ForCausalLM"},   {"gemma2", "Gemma2ForCausalLM"}};

class ConfigBuilder {
 public:
  explicit ConfigBuilder(const io::GgufFile& file) : file_(file), where_(file.path().string()) {
    check_kind();
    arch_ = file.at<std::string>("general.architecture");
    check_architecture();
    const auto* window = find<int64_t>("attention.sliding_window");
    window_ = window == nullptr ? 0 : *window;
    family_ = arch_ == "llama" && window_ > 0 ? "mistral" : arch_;
  }

  std::string build() {
    add_names();
    add_sizes();
    add_rope();
    add_family();
    add_tokens();
    return json_.dump(2) + "\n";
  }

 private:
  template <typename T>
  const T* find(const std::string& key) const {
    return file_.find<T>(arch_ + "." + key);
  }
  int64_t size(const std::string& key) const { return file_.at<int64_t>(arch_ + "." + key); }
  const io::TensorView* tensor(std::string_view name) const {
    const auto found = std::ranges::find(file_.tensors(), name, &io::TensorView::name);
    return found == file_.tensors().end() ? nullptr : &*found;
  }

  void check_kind() const {
    const auto* kind = file_.find<std::string>("general.type");
    if (kind != nullptr && *kind != "model")
      user_error(
          "{}: the file is a GGUF {}, not a model; use the model's file, and adapters in PEFT's format",
          where_, *kind);
  }

  void check_architecture() const {
    if (arch_ != "mistral" && std::ranges::find(kGgufFamilies, arch_) != kGgufFamilies.end()) {
      const auto* experts = find<int64_t>("expert_count");
      if (experts == nullptr || *experts == 0) return;
      user_error("{}: a mixture of experts is not supported as GGUF; use the original model's folder",
                 where_);
    }
    std::vector<std::string> names(kGgufFamilies.begin(), kGgufFamilies.end());
    std::erase(names, "mistral");
    user_error(
        "{}: the architecture '{}' is not supported as GGUF ({} are); use the original model's folder with "
        "safetensors",
        where_, arch_, fmt::join(names, ", "));
  }

  /// Returns the dtype of most elements; quantized elements count as bf16.
  DType main_dtype() const {
    std::map<DType, int64_t> counts;
    for (const io::TensorView& one : file_.tensors()) counts[one.dtype] += one.shape.num_elements();
    if (counts.empty()) return DType::f32;
    return std::ranges::max_element(counts, {}, &std::pair<const DType, int64_t>::second)->first;
  }

  void add_names() {
    const auto* name = std::ranges::find(kClassNames, family_, &ClassName::family);
    json_["architectures"] = {name->name};
    json_["model_type"] = family_;
    json_["dtype"] = json_["torch_dtype"] = models::torch_name(main_dtype());
  }

  void add_sizes() {
    const io::TensorView* table = tensor("token_embd.weight");
    if (table == nullptr || table->shape.rank() != 2)
      user_error("{}: expected a tensor 'token_embd.weight' of two axes; download the file again", where_);
    json_["vocab_size"] = table->shape[0];
    json_["hidden_size"] = size("embedding_length");
    json_["intermediate_size"] = size("feed_forward_length");
    json_["num_hidden_layers"] = size("block_count");
    const int64_t heads = size("attention.head_count");
    const auto* kv_heads = find<int64_t>("attention.head_count_kv");
    json_["num_attention_heads"] = heads;
    json_["num_key_value_heads"] = kv_heads == nullptr ? heads : *kv_heads;
    json_["head_dim"] = head_size(heads);
    json_["max_position_embeddings"] = size("context_length");
    json_["rms_norm_eps"] = file_.at<double>(arch_ + ".attention.layer_norm_rms_epsilon");
    json_["tie_word_embeddings"] = tensor("output.weight") == nullptr;
  }

  int64_t head_size(int64_t heads) const {
    if (const auto* length = find<int64_t>("attention.key_length")) {
      const auto* values = find<int64_t>("attention.value_length");
      if (values != nullptr && *values != *length)
        user_error("{}: attention keys of {} elements with values of {} elements are not supported", where_,
                   *length, *values);
      return *length;
    }
    if (heads < 1) user_error("{}: attention.head_count is {}; download the file again", where_, heads);
    return size("embedding_length") / heads;
  }

  std::vector<double> table(const char* name) const {
    std::vector<double> values;
    for (const float value : floats_of(*tensor(name))) values.push_back(io::shortest(value));
    return values;
  }

  void refuse_rope(std::string_view found) const {
    user_error("{}: the RoPE scaling '{}' of {} is not supported as GGUF; use the original model's folder",
               where_, found, arch_);
  }

  void add_rope() {
    const auto* rotary = find<int64_t>("rope.dimension_count");
    if (rotary != nullptr && *rotary != json_["head_dim"] && arch_ != "phi3")
      user_error("{}: RoPE on {} of the {} elements of a head is not supported as GGUF for {}", where_,
                 *rotary, json_["head_dim"].dump(), arch_);
    const auto* theta = find<double>("rope.freq_base");
    json_["rope_theta"] = theta == nullptr ? 10000.0 : *theta;
    const auto* type = find<std::string>("rope.scaling.type");
    const bool is_linear = type != nullptr && *type == "linear";
    if (is_linear) {
      const auto* factor = find<double>("rope.scaling.factor");
      json_["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor == nullptr ? 1.0 : *factor}};
    } else if (type != nullptr && *type != "none" && *type != "longrope") {
      refuse_rope(*type);
    }
    if (tensor("rope_freqs.weight") != nullptr) {
      if (arch_ != "llama" || is_linear) refuse_rope("rope_freqs.weight");
      add_llama3_rope();
    }
    if (tensor("rope_factors_long.weight") != nullptr || tensor("rope_factors_short.weight") != nullptr) {
      if (arch_ != "phi3") refuse_rope("rope_factors_long.weight");
    } else if (type != nullptr && *type == "longrope") {
      refuse_rope(*type);
    }
  }

  /// Adds llama3 scaling if its factors with the settings of Llama's models equal those in the file;
  /// otherwise adds the factors in the file as LongRoPE.
  void add_llama3_rope() {
    const std::vector<double> factors = table("rope_freqs.weight");
    const double largest = factors.empty() ? 1 : *std::ranges::max_element(factors);
    json_["rope_scaling"] = {{"rope_type", "llama3"},
                             {"factor", largest},
                             {"low_freq_factor", 1.0},
                             {"high_freq_factor", 4.0},
                             {"original_max_position_embeddings", 8192}};
    const models::DecoderConfig config = models::parse_decoder_config(json_.dump(), where_);
    const std::vector<double> computed = llama3_factors(config.rope, config.head_size);
    if (std::ranges::equal(factors, computed,
                           [](double a, double b) { return std::abs(a - b) <= kMaxRopeError * std::abs(b); }))
      return;
    json_["original_max_position_embeddings"] = json_["max_position_embeddings"];
    json_["rope_scaling"] = {{"rope_type", "longrope"},
                             {"short_factor", factors},
                             {"long_factor", factors},
                             {"attention_factor", 1.0}};
  }

  void add_family() {
    json_["hidden_act"] = "silu";
    if (family_ == "llama") {
      json_["attention_bias"] = tensor("blk.0.attn_q.bias") != nullptr;
      json_["mlp_bias"] = tensor("blk.0.ffn_up.bias") != nullptr;
    } else if (family_ == "phi3") {
      add_phi3();
    } else if (family_ == "gemma2") {
      add_gemma2();
    } else if (family_ == "mistral") {
      json_["sliding_window"] = window_;
    } else if (window_ > 0) {
      user_error("{}: a sliding window is not supported for {} as GGUF; use the original model's folder",
                 where_, arch_);
    }
  }

  void add_phi3() {
    json_["sliding_window"] = window_ > 0 ? Json(window_) : Json(nullptr);
    json_["pad_token_id"] = nullptr;
    if (const auto* rotary = find<int64_t>("rope.dimension_count"))
      json_["partial_rotary_factor"] = static_cast<double>(*rotary) / json_["head_dim"].get<double>();
    if (const auto* original = find<int64_t>("rope.scaling.original_context_length"))
      json_["original_max_position_embeddings"] = *original;
    if (tensor("rope_factors_long.weight") == nullptr || tensor("rope_factors_short.weight") == nullptr)
      return;
    Json& scaling = json_["rope_scaling"];
    scaling = {{"type", "longrope"},
               {"short_factor", table("rope_factors_short.weight")},
               {"long_factor", table("rope_factors_long.weight")}};
    const auto* magnitude = find<double>("rope.scaling.attn_factor");
    if (magnitude == nullptr) return;
    const models::DecoderConfig config = models::parse_decoder_config(json_.dump(), where_);
    if (std::abs(config.rope.attention_factor - *magnitude) > kMaxRopeError)
      scaling["attention_factor"] = *magnitude;
  }

  void add_gemma2() {
    json_["hidden_act"] = json_["hidden_activation"] = "gelu_pytorch_tanh";
    json_["sliding_window"] = window_ > 0 ? window_ : 4096;
    const auto* attention_cap = find<double>("attn_logit_softcapping");
    const auto* head_cap = find<double>("final_logit_softcapping");
    json_["attn_logit_softcapping"] = attention_cap == nullptr ? 50.0 : *attention_cap;
    json_["final_logit_softcapping"] = head_cap == nullptr ? 30.0 : *head_cap;
    json_["query_pre_attn_scalar"] = gemma2_query_size(models::parse_decoder_config(json_.dump(), where_));
  }

  void add_tokens() {
    for (const char* role : {"bos", "eos"}) {
      if (const auto* id = file_.find<int64_t>(fmt::format("tokenizer.ggml.{}_token_id", role)))
        json_[fmt::format("{}_token_id", role)] = *id;
    }
  }

  const io::GgufFile& file_;
  std::string where_, arch_, family_;
  int64_t window_ = 0;
  Json json_;
};

}  // namespace

std::string gguf_config_json(const io::GgufFile& file) { return ConfigBuilder(file).build(); }

}  // namespace hearth::hub
