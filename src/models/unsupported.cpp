#include "models/unsupported.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"

namespace hearth::models {
namespace {

using Named = std::pair<std::string_view, std::string_view>;

constexpr int64_t kMaxIndexBytes = 1 << 22;

/// Display names of unsupported language model families by model_type, for messages. Some resemble supported
/// families, but their weights have other names or shapes.
constexpr Named kFamilies[] = {
    {"apertus", "Apertus"},
    {"arcee", "Arcee"},
    {"baichuan", "Baichuan"},
    {"bamba", "Bamba"},
    {"bitnet", "BitNet"},
    {"bloom", "BLOOM"},
    {"chatglm", "ChatGLM"},
    {"cohere", "Command R"},
    {"cohere2", "Command R7B and Command A"},
    {"dbrx", "DBRX"},
    {"deepseek_v2", "DeepSeek-V2"},
    {"deepseek_v3", "DeepSeek-V3 and R1"},
    {"deepseek_v32", "DeepSeek-V3.2"},
    {"ernie4_5", "ERNIE 4.5"},
    {"ernie4_5_moe", "ERNIE 4.5 MoE"},
    {"exaone", "EXAONE 3"},
    {"exaone4", "EXAONE 4"},
    {"falcon", "Falcon"},
    {"falcon_h1", "Falcon-H1"},
    {"falcon_mamba", "Falcon Mamba"},
    {"gemma", "Gemma 1"},
    {"gemma3", "Gemma 3 of 4B and up, which reads images too; its text-only form, gemma3_text, is supported"},
    {"gemma3n", "Gemma 3n"},
    {"gemma3n_text", "Gemma 3n"},
    {"gemma4", "Gemma 4"},
    {"gemma4_text", "Gemma 4"},
    {"glm", "GLM-4"},
    {"glm4", "GLM-4"},
    {"glm4_moe", "GLM-4.5"},
    {"gpt_bigcode", "StarCoder"},
    {"gpt_neo", "GPT-Neo"},
    {"gpt_neox", "GPT-NeoX and Pythia"},
    {"gpt_oss", "gpt-oss"},
    {"gptj", "GPT-J"},
    {"granitemoe", "Granite MoE"},
    {"granitemoehybrid", "Granite 4"},
    {"hunyuan_v1_dense", "Hunyuan"},
    {"hunyuan_v1_moe", "Hunyuan MoE"},
    {"internlm2", "InternLM2"},
    {"internlm3", "InternLM3"},
    {"internvl", "InternVL"},
    {"jamba", "Jamba"},
    {"kimi_k2", "Kimi K2"},
    {"kimi_linear", "Kimi Linear"},
    {"lfm2", "LFM2"},
    {"lfm2_moe", "LFM2 MoE"},
    {"lfm2_vl", "LFM2-VL"},
    {"llama4", "Llama 4"},
    {"llama4_text", "Llama 4"},
    {"llava", "LLaVA"},
    {"llava_next", "LLaVA-NeXT"},
    {"mamba", "Mamba"},
    {"mamba2", "Mamba 2"},
    {"minicpm", "MiniCPM"},
    {"minicpm3", "MiniCPM3"},
    {"minimax", "MiniMax"},
    {"minimax_m2", "MiniMax-M2"},
    {"ministral", "Ministral"},
    {"ministral3", "Ministral 3"},
    {"mistral3", "Mistral Small 3.1 and later, which reads images too"},
    {"mistral4", "Mistral 4"},
    {"mllama", "Llama 3.2 Vision"},
    {"mpt", "MPT"},
    {"nemotron", "Nemotron"},
    {"nemotron_h", "Nemotron-H"},
    {"olmo", "OLMo 1"},
    {"olmoe", "OLMoE"},
    {"opt", "OPT"},
    {"paligemma", "PaliGemma"},
    {"phi", "Phi-1 and Phi-2"},
    {"phi3_v", "Phi-3 Vision"},
    {"phi3small", "Phi-3 small"},
    {"phi4_multimodal", "Phi-4 multimodal"},
    {"phi4mm", "Phi-4 multimodal"},
    {"phimoe", "Phi-3.5 MoE"},
    {"pixtral", "Pixtral"},
    {"qwen", "Qwen 1"},
    {"qwen2_5_omni", "Qwen2.5-Omni"},
    {"qwen2_5_vl", "Qwen2.5-VL"},
    {"qwen2_audio", "Qwen2-Audio"},
    {"qwen2_moe", "Qwen2 MoE"},
    {"qwen2_vl", "Qwen2-VL"},
    {"qwen3_5", "Qwen3.5"},
    {"qwen3_5_moe", "Qwen3.5 MoE"},
    {"qwen3_5_moe_text", "Qwen3.5 MoE"},
    {"qwen3_5_text", "Qwen3.5"},
    {"qwen3_next", "Qwen3-Next"},
    {"qwen3_omni_moe", "Qwen3-Omni"},
    {"qwen3_vl", "Qwen3-VL"},
    {"qwen3_vl_moe", "Qwen3-VL MoE"},
    {"recurrent_gemma", "RecurrentGemma"},
    {"rwkv", "RWKV"},
    {"seed_oss", "Seed-OSS"},
    {"smolvlm", "SmolVLM"},
    {"stablelm", "StableLM"},
    {"starcoder2", "StarCoder2"},
    {"voxtral", "Voxtral"},
};

/// Display names of unsupported image models by prefix of diffusers' class name, longer prefixes first.
constexpr Named kImageModels[] = {
    {"AuraFlow", "AuraFlow"},
    {"Chroma", "Chroma"},
    {"CogVideo", "CogVideoX"},
    {"CogView", "CogView"},
    {"HiDream", "HiDream"},
    {"HunyuanDiT", "Hunyuan-DiT"},
    {"HunyuanImage", "HunyuanImage"},
    {"HunyuanVideo", "HunyuanVideo"},
    {"Kandinsky", "Kandinsky"},
    {"Kolors", "Kolors"},
    {"LTX", "LTX-Video"},
    {"LatentConsistencyModel", "Latent Consistency Models"},
    {"Lumina", "Lumina"},
    {"PixArt", "PixArt"},
    {"QwenImage", "Qwen-Image"},
    {"SD3", "Stable Diffusion 3"},
    {"Sana", "Sana"},
    {"StableCascade", "Stable Cascade"},
    {"StableDiffusion3", "Stable Diffusion 3"},
    {"StableDiffusionXL", "Stable Diffusion XL"},
    {"StableDiffusion", "Stable Diffusion 1 and 2"},
    {"UNet2DConditionModel", "the UNet of Stable Diffusion 1, 2 and XL"},
    {"Wan", "Wan"},
    {"ZImage", "Z-Image"},
};

}  // namespace

std::string_view unsupported_family(std::string_view model_type) {
  const auto* found = std::ranges::find(kFamilies, model_type, &Named::first);
  return found == std::end(kFamilies) ? "" : found->second;
}

void refuse_unsupported_image_model(const std::string& class_name, const std::string& where) {
  const auto* found =
      std::ranges::find_if(kImageModels, [&](const Named& one) { return class_name.starts_with(one.first); });
  if (found == std::end(kImageModels)) return;
  user_error(
      "{}: {} is {}, which is not supported; supported image models are FLUX.1, FLUX.2 [klein] and DiT",
      where, class_name, found->second);
}

void refuse_unsupported_pipeline(const fs::path& folder) {
  const fs::path index = folder / kModelIndex;
  if (!fs::is_regular_file(index)) return;
  const auto json = parse_json_object<nlohmann::json>(read_file(index, kMaxIndexBytes), index.string());
  const auto found = json.find("_class_name");
  if (found == json.end() || !found->is_string()) return;
  refuse_unsupported_image_model(found->get<std::string>(), index.string());
}

}  // namespace hearth::models
