#include "text/ggml_patterns.h"

#include <array>

#include "text/pre_tokenizer.h"

namespace hearth::text {
namespace {

constexpr const char* kTekkenPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

GgmlPattern renamed(GgmlPattern pattern, const char* name) {
  pattern.name = name;
  return pattern;
}

}  // namespace

std::span<const GgmlPattern> ggml_patterns() {
  static const GgmlPattern llama3 = {
      .name = "llama-bpe", .pattern = kLlama3Pattern, .ignore_merges = true, .adds_bos = true};
  static const GgmlPattern qwen2 = {.name = "qwen2", .pattern = kQwen2Pattern, .composes = true};
  static const std::array patterns = {
      GgmlPattern{.name = "gpt-2"},
      GgmlPattern{.name = "smollm", .digits = true},
      llama3,
      GgmlPattern{.name = "dbrx", .pattern = kLlama3Pattern},
      qwen2,
      GgmlPattern{.name = "tekken", .pattern = kTekkenPattern, .ignore_merges = true, .adds_bos = true},
      GgmlPattern{.name = "gpt-4o", .pattern = kO200kPattern},
      renamed(llama3, "llama3"),
      renamed(llama3, "llama-v3"),
      renamed(qwen2, "deepseek-r1-qwen")};
  return patterns;
}

}  // namespace hearth::text
