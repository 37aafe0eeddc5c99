#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "hub/denoiser_adapter.h"
#include "hub/floats.h"
#include "hub/flux_names.h"

namespace hearth::hub {
namespace {

using io::TensorView;

/// A list of f32 tensors to write, with the memory of their values.
struct Made {
  std::vector<std::vector<float>> memory;
  std::vector<TensorView> tensors;

  void add(std::string name, const Shape& shape, std::vector<float> values) {
    memory.push_back(std::move(values));
    tensors.push_back({.name = std::move(name),
                       .dtype = DType::f32,
                       .shape = shape,
                       .bytes = std::as_bytes(std::span(memory.back()))});
  }
};

/// Combines the LoRA matrices of the modules that are one fused module in kohya's format: stacks lora_A of
/// all parts in `down`, and puts their lora_B on the block diagonal of `up`. A part without an adapter gets
/// zeros, with the max rank of the other parts.
class Fused {
 public:
  Fused(const DenoiserAdapter& adapter, const FluxModule& module) : adapter_(adapter), module_(module) {
    for (const std::string& part : module.parts) {
      const auto found = adapter.modules().find(part);
      if (found == adapter.modules().end()) continue;
      if (max_rank_ == 0) scale_ = found->second.scale;
      max_rank_ = std::max(max_rank_, found->second.rank);
      const Shape& shape = adapter.matrix(part, 'A').shape;
      if (columns_ == 0) columns_ = shape[1];
      if (shape[1] != columns_)
        user_error(
            "{}: expected lora_A of '{}' with {} columns, as in the modules that are fused with it, found {}",
            adapter.path().string(), part, columns_, shape[1]);
    }
  }

  bool empty() const { return max_rank_ == 0; }

  void add_to(Made& made, const std::string& name) const {
    int64_t rank = 0, rows = 0;
    for (const std::string& part : module_.parts) {
      rank += rank_of(part);
      rows += rows_of(part);
    }
    std::vector<float> down(static_cast<size_t>(rank * columns_)), up(static_cast<size_t>(rows * rank));
    int64_t first = 0, row = 0;
    for (const std::string& part : module_.parts) {
      if (adapter_.modules().contains(part)) put(part, first, row, rank, down, up);
      first += rank_of(part);
      row += rows_of(part);
    }
    if (module_.swapped) std::rotate(up.begin(), up.begin() + static_cast<int64_t>(up.size() / 2), up.end());
    made.add(name + ".alpha", {}, {static_cast<float>(scale_ * static_cast<double>(rank))});
    made.add(name + ".lora_down.weight", {rank, columns_}, std::move(down));
    made.add(name + ".lora_up.weight", {rows, rank}, std::move(up));
  }

 private:
  int64_t rank_of(const std::string& part) const {
    const auto found = adapter_.modules().find(part);
    return found == adapter_.modules().end() ? max_rank_ : found->second.rank;
  }
  /// Returns the number of rows of a part's lora_B. For a part without an adapter: the input width if it is
  /// query, key or value, and four times that for the MLP of FLUX.1.
  int64_t rows_of(const std::string& part) const {
    if (adapter_.modules().contains(part)) return adapter_.matrix(part, 'B').shape[0];
    return part.ends_with("proj_mlp") ? 4 * columns_ : columns_;
  }

  void put(const std::string& part, int64_t first, int64_t row, int64_t rank, std::vector<float>& down,
           std::vector<float>& up) const {
    const std::vector<float> a = floats_of(adapter_.matrix(part, 'A'));
    const std::vector<float> b = floats_of(adapter_.matrix(part, 'B'));
    const nn::Adapter::Change& change = adapter_.modules().find(part)->second;
    const auto factor = static_cast<float>(change.scale / scale_);
    std::ranges::copy(a, down.begin() + first * columns_);
    for (int64_t i = 0; i < std::ssize(b); ++i) {
      const int64_t at = (row + i / change.rank) * rank + first + i % change.rank;
      up[static_cast<size_t>(at)] =
          change.scale == scale_ ? b[static_cast<size_t>(i)] : factor * b[static_cast<size_t>(i)];
    }
  }

  const DenoiserAdapter& adapter_;
  const FluxModule& module_;
  int64_t max_rank_ = 0, columns_ = 0;
  double scale_ = 1;
};

std::map<std::string, std::string> kohya_metadata(const DenoiserAdapter& adapter, const fs::path& file,
                                                  bool flux2) {
  const auto& [module, change] = *adapter.modules().begin();
  return {{"ss_network_module", flux2 ? "networks.lora_flux_2" : "networks.lora_flux"},
          {"ss_network_dim", std::to_string(change.rank)},
          {"ss_network_alpha",
           fmt::format("{}", static_cast<float>(change.scale * static_cast<double>(change.rank)))},
          {"ss_base_model_version", flux2 ? "flux2" : "flux1"},
          {"ss_output_name", file.stem().string()},
          {"modelspec.sai_model_spec", "1.0.0"},
          {"modelspec.architecture", flux2 ? "flux-2/lora" : "flux-1-dev/lora"},
          {"modelspec.title", file.stem().string()}};
}

}  // namespace

void write_diffusers_lora(const DenoiserAdapter& adapter, const fs::path& file) {
  Made made;
  for (const TensorView& tensor : adapter.files().tensors()) {
    std::vector<float> values = floats_of(tensor);
    const auto factor = static_cast<float>(file_factor(adapter.modules(), tensor.name));
    for (float& value : values) value *= factor;
    made.add(tensor.name, tensor.shape, std::move(values));
  }
  replace_file(file, [&](const fs::path& temporary) {
    io::write_safetensors(temporary, made.tensors, diffusers_metadata(adapter.modules()));
  });
}

void write_kohya_lora(const DenoiserAdapter& adapter, const fs::path& file) {
  std::vector<std::string> names;
  for (const auto& [module, change] : adapter.modules()) names.push_back(module);
  const auto is_of_second = [](const std::string& name) {
    return name.find("to_qkv_mlp_proj") != std::string::npos ||
           name.find(".linear_in") != std::string::npos || name.find(".linear_out") != std::string::npos ||
           name.find("stream_modulation") != std::string::npos;
  };
  const bool flux2 = std::ranges::any_of(names, is_of_second);
  // Max of the numbers of double- and single-stream blocks, because this also counts
  // "single_transformer_blocks".
  const int64_t blocks = num_blocks(names, "transformer_blocks");
  const std::vector<FluxModule> modules =
      flux_modules({.flux2 = flux2, .num_double = blocks, .num_single = blocks});
  Made made;
  for (const FluxModule& module : modules) {
    std::string name = module.original;
    std::ranges::replace(name, '.', '_');
    const Fused fused(adapter, module);
    if (!fused.empty()) fused.add_to(made, "lora_unet_" + name);
    std::erase_if(names, [&](const std::string& one) { return std::ranges::count(module.parts, one) > 0; });
  }
  if (!names.empty())
    user_error("{}: kohya's keys are supported for FLUX transformers only; they have no name for '{}'",
               adapter.path().string(), names.front());
  replace_file(file, [&](const fs::path& temporary) {
    io::write_safetensors(temporary, made.tensors, kohya_metadata(adapter, file, flux2));
  });
}

}  // namespace hearth::hub
