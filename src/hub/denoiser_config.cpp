#include "hub/denoiser_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "hub/flux_names.h"
#include "hub/open_weights.h"
#include "models/decoder/config.h"

namespace hearth::hub {
namespace {

/// Head size of FLUX.1 and FLUX.2. Other sizes are unsupported, because the tensors do not show how RoPE
/// divides a head's elements among the axes.
constexpr int64_t kHeadSize = 128;

/// The tensors in a denoiser's weight file, under diffusers' names.
class Tensors {
 public:
  explicit Tensors(const fs::path& file) : files_(open_weights(file)) {}

  bool has(std::string_view name) const { return files_.find(name) != nullptr; }
  int64_t extent(const std::string& name, int axis) const {
    const io::TensorView* found = files_.find(name);
    if (found == nullptr || found->shape.rank() <= axis || found->shape[axis] < 1) fail(name);
    return found->shape[axis];
  }
  int64_t num_blocks(const std::string& kind) const {
    std::vector<std::string> names = files_.names();
    std::erase_if(names, [&](const std::string& name) { return !name.starts_with(kind + "."); });
    return hub::num_blocks(names, kind);
  }
  [[noreturn]] void fail(const std::string& name) const {
    user_error(
        "{}: not the weights of a FLUX.1 or FLUX.2: '{}' is missing or has another shape; set model.config "
        "to its config.json",
        files_.path().string(), name);
  }

 private:
  io::WeightFiles files_;
};

nlohmann::ordered_json describe(const fs::path& file) {
  const Tensors tensors(file);
  const bool flux2 = tensors.has("double_stream_modulation_img.linear.weight");
  const std::string time = flux2 ? "time_guidance_embed." : "time_text_embed.", norm = "attn.norm_q.weight";
  const int64_t width = tensors.extent("x_embedder.weight", 0),
                num_double = tensors.num_blocks("transformer_blocks");
  const std::string head = (num_double > 0 ? "transformer_blocks.0." : "single_transformer_blocks.0.") + norm;
  if (tensors.extent(head, 0) != kHeadSize || width % kHeadSize != 0) tensors.fail(head);
  nlohmann::ordered_json json = {
      {"_class_name", flux2 ? "Flux2Transformer2DModel" : "FluxTransformer2DModel"},
      {"in_channels", tensors.extent("x_embedder.weight", 1)},
      {"out_channels", tensors.extent("proj_out.weight", 0)},
      {"num_layers", num_double},
      {"num_single_layers", tensors.num_blocks("single_transformer_blocks")},
      {"attention_head_dim", kHeadSize},
      {"num_attention_heads", width / kHeadSize},
      {"joint_attention_dim", tensors.extent("context_embedder.weight", 1)},
      {"guidance_embeds", tensors.has(time + "guidance_embedder.linear_1.weight")}};
  if (flux2) {
    json["timestep_guidance_channels"] = tensors.extent(time + "timestep_embedder.linear_1.weight", 1);
  } else {
    json["pooled_projection_dim"] = tensors.extent(time + "text_embedder.linear_1.weight", 1);
  }
  return json;
}

}  // namespace

DenoiserDescription describe_denoiser(const recipe::Model& model) {
  const bool is_alone = model.config.empty() && fs::is_regular_file(model.path);
  const fs::path file = is_alone ? fs::path(model.path) : model.config_file();
  std::string json = is_alone ? describe(file).dump(2) + "\n" : models::read_denoiser_json(file);
  const models::DenoiserConfig config = models::parse_denoiser_config(json, file.string());
  return {std::move(json), config};
}

}  // namespace hearth::hub
