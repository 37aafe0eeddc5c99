#include "bench/report_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace hearth::bench {
namespace {

// clang-format off
constexpr ReportModel kModels[] = {
    // name, family, length, pretrain batch, finetune batch, vocab_size, hidden, intermediate, layers, heads,
    // KV heads, head size, max positions, RoPE theta, RoPE factor, tied head
    {"Llama-260K", "llama", 64, 2, 2, 512, 64, 172, 5, 8, 4, 8, 512, 1e4, 0, true},
    {"Llama-15M", "llama", 256, 8, 8, 32000, 288, 768, 6, 6, 6, 48, 1024, 1e4, 0, true},
    {"Llama-110M", "llama", 1024, 8, 8, 32000, 768, 2048, 12, 12, 12, 64, 1024, 1e4, 0, true},
    {"Llama-2-7B", "llama", 4096, 18, 32, 32000, 4096, 11008, 32, 32, 32, 128, 4096, 1e4, 0, false},
    {"Llama-2-13B", "llama", 4096, 18, 32, 32000, 5120, 13824, 40, 40, 40, 128, 4096, 1e4, 0, false},
    {"Llama-2-70B", "llama", 4096, 4, 8, 32000, 8192, 28672, 80, 64, 8, 128, 4096, 1e4, 0, false},
    {"Llama-3-8B", "llama", 8192, 18, 16, 128256, 4096, 14336, 32, 32, 8, 128, 8192, 5e5, 0, false},
    {"Llama-3-70B", "llama", 8192, 4, 4, 128256, 8192, 28672, 80, 64, 8, 128, 8192, 5e5, 0, false},
    {"Llama-3.1-8B", "llama", 8192, 18, 16, 128256, 4096, 14336, 32, 32, 8, 128, 131072, 5e5, 8, false},
    {"Llama-3.1-70B", "llama", 8192, 4, 4, 128256, 8192, 28672, 80, 64, 8, 128, 131072, 5e5, 8, false},
    {"Llama-3.1-405B", "llama", 8192, 2, 2, 128256, 16384, 53248, 126, 128, 8, 128, 131072, 5e5, 8, false},
    {"Llama-3.2-1B", "llama", 8192, 18, 16, 128256, 2048, 8192, 16, 32, 8, 64, 131072, 5e5, 32, true},
    {"Llama-3.2-3B", "llama", 8192, 18, 16, 128256, 3072, 8192, 28, 24, 8, 128, 131072, 5e5, 32, true},
    {"Llama-3.3-70B", "llama", 8192, 4, 4, 128256, 8192, 28672, 80, 64, 8, 128, 131072, 5e5, 8, false},
    {"Qwen2.5-0.5B", "qwen2", 8192, 18, 16, 151936, 896, 4864, 24, 14, 2, 64, 32768, 1e6, 0, true},
    {"Qwen2.5-1.5B", "qwen2", 8192, 18, 16, 151936, 1536, 8960, 28, 12, 2, 128, 32768, 1e6, 0, true},
    {"Qwen2.5-3B", "qwen2", 8192, 18, 16, 151936, 2048, 11008, 36, 16, 2, 128, 32768, 1e6, 0, true},
    {"Qwen2.5-7B", "qwen2", 8192, 18, 16, 152064, 3584, 18944, 28, 28, 4, 128, 131072, 1e6, 0, false},
    {"Qwen2.5-14B", "qwen2", 8192, 18, 16, 152064, 5120, 13824, 48, 40, 8, 128, 131072, 1e6, 0, false},
    {"Qwen2.5-32B", "qwen2", 8192, 4, 4, 152064, 5120, 27648, 64, 40, 8, 128, 131072, 1e6, 0, false},
    {"Qwen2.5-72B", "qwen2", 8192, 4, 4, 152064, 8192, 29568, 80, 64, 8, 128, 131072, 1e6, 0, false},
    {"Qwen3-0.6B", "qwen3", 8192, 18, 16, 151936, 1024, 3072, 28, 16, 8, 128, 40960, 1e6, 0, true},
    {"Qwen3-1.7B", "qwen3", 8192, 18, 16, 151936, 2048, 6144, 28, 16, 8, 128, 40960, 1e6, 0, true},
    {"Qwen3-4B", "qwen3", 8192, 18, 16, 151936, 2560, 9728, 36, 32, 8, 128, 40960, 1e6, 0, true},
    {"Qwen3-8B", "qwen3", 8192, 18, 16, 151936, 4096, 12288, 36, 32, 8, 128, 40960, 1e6, 0, false},
    {"Qwen3-14B", "qwen3", 8192, 18, 16, 151936, 5120, 17408, 40, 40, 8, 128, 40960, 1e6, 0, false},
    {"Qwen3-32B", "qwen3", 8192, 4, 4, 151936, 5120, 25600, 64, 64, 8, 128, 40960, 1e6, 0, false},
    {.name = "ResNet-18", .length = 224, .pretrain_batch = 128, .image_model = "resnet18"},
    {.name = "ResNet-34", .length = 224, .pretrain_batch = 128, .image_model = "resnet34"},
    {.name = "ResNet-50", .length = 224, .pretrain_batch = 128, .image_model = "resnet50"},
    {.name = "Flux", .length = 512, .finetune_batch = 1, .denoiser = "flux1_dev"},
    {.name = "Flux-535M", .length = 512, .finetune_batch = 1, .denoiser = "flux1_535m"},
};
// clang-format on

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

std::string rope_scaling(double factor) {
  if (factor == 0) return "null";
  return fmt::format(
      R"({{"rope_type": "llama3", "factor": {}, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
"original_max_position_embeddings": 8192}})",
      factor);
}

}  // namespace

std::span<const ReportModel> report_models() { return kModels; }

const ReportModel* find_report_model(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kModels, [&](const ReportModel& model) { return std::ranges::equal(model.name, name, same_letter); });
  return found == std::end(kModels) ? nullptr : found;
}

models::DecoderConfig decoder_config(const ReportModel& model) {
  const std::string json = fmt::format(
      R"({{"model_type": "{}", "vocab_size": {}, "hidden_size": {}, "intermediate_size": {},
"num_hidden_layers": {}, "num_attention_heads": {}, "num_key_value_heads": {}, "head_dim": {},
"max_position_embeddings": {}, "rope_theta": {}, "rope_scaling": {}, "rms_norm_eps": {},
"tie_word_embeddings": {}}})",
      model.family, model.vocab_size, model.hidden, model.intermediate, model.num_layers, model.num_heads,
      model.num_kv_heads, model.head_size, model.max_positions, model.rope_theta,
      rope_scaling(model.rope_factor), model.family == "llama" ? 1e-5 : 1e-6, model.tied_head);
  return models::parse_decoder_config(json, std::string(model.name));
}

double torchtitan_flops(const models::DecoderConfig& decoder, int64_t num_parameters, int64_t length) {
  const int64_t table = decoder.tied_head ? 0 : decoder.vocab_size * decoder.hidden;
  const int64_t attention = 12 * decoder.num_layers * decoder.num_heads * decoder.head_size * length;
  return static_cast<double>(length) * static_cast<double>(6 * (num_parameters - table) + attention);
}

}  // namespace hearth::bench
