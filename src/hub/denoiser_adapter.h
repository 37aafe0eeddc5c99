#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/weight_files.h"
#include "nn/module.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// Prefix of a denoiser's module names in diffusers' LoRA files.
inline constexpr const char* kDenoiserPrefix = "transformer.";

/// A LoRA of a denoiser. Reads files with the keys of diffusers or PEFT (`transformer.NAME.lora_A.weight`)
/// and of kohya's sd-scripts (`lora_unet_NAME.lora_down.weight`). kohya's matrices of fused modules (qkv) are
/// split into those of diffusers' separate modules.
class DenoiserAdapter {
 public:
  /// Opens a LoRA file, or the one in a folder. Throws a UserError for unknown keys, matrices whose shapes do
  /// not match, and an invalid alpha.
  explicit DenoiserAdapter(const fs::path& file_or_folder);

  /// Returns rank and scale (the factor of lora_B lora_A) of each module, by diffusers' module name.
  const std::map<std::string, nn::Adapter::Change, std::less<>>& modules() const { return modules_; }
  /// Returns the matrices, named "transformer.NAME.lora_A.weight" [rank, in] and
  /// "transformer.NAME.lora_B.weight" [out, rank].
  const io::WeightFiles& files() const { return files_; }
  /// Returns lora_A (`which` is 'A') or lora_B ('B') of a module. The module must have an adapter.
  const io::TensorView& matrix(const std::string& module, char which) const;
  const fs::path& path() const { return files_.paths()[0]; }

 private:
  void read_kohya();
  void read_diffusers();
  /// Throws a UserError unless every tensor is lora_A or lora_B of a module, the ranks of both match, and all
  /// scales are finite.
  void check();

  io::WeightFiles files_;
  std::map<std::string, nn::Adapter::Change, std::less<>> modules_;
};

/// True if a file, or the weights file in a folder, is a LoRA of a denoiser.
bool is_denoiser_adapter(const fs::path& file_or_folder);

/// Returns the description of the adapter with which a denoiser is built. If options.path is set, ranks and
/// scales come from that LoRA file.
nn::Adapter denoiser_adapter(const recipe::Adapter& options);

/// Rank and scale of each module with an adapter, by diffusers' module name.
using AdaptedModules = std::map<std::string, nn::Adapter::Change, std::less<>>;
AdaptedModules adapted_modules(const nn::Adapter& adapter, const std::vector<nn::Tensor>& tensors);
/// Returns the factor by which a tensor is multiplied when it is written to a LoRA file: the module's scale,
/// alpha / rank, for "NAME.lora_B.weight", otherwise 1. Files then declare alpha = rank, so that programs
/// that read the metadata (diffusers) and programs that read only tensors (ComfyUI) compute the same change.
double file_factor(const AdaptedModules& modules, const std::string& tensor);
/// Returns the text of adapter_config.json for the LoRA of `modules` on the base model in `base`, in files
/// that are written with file_factor(). Its `r` is the most frequent rank.
std::string peft_config_json(const AdaptedModules& modules, const fs::path& base);
/// Returns the metadata of a LoRA file with diffusers' keys that is written with file_factor():
/// lora_adapter_metadata, and the modules' scales, by which DenoiserAdapter divides lora_B when it reads the
/// file.
std::map<std::string, std::string> diffusers_metadata(const AdaptedModules& modules);

/// Write a LoRA in f32, with diffusers' keys and metadata or with kohya's. Modules that are fused in kohya's
/// format are combined. Throws a UserError for a module that has no name in kohya's format.
void write_diffusers_lora(const DenoiserAdapter& adapter, const fs::path& file);
void write_kohya_lora(const DenoiserAdapter& adapter, const fs::path& file);

}  // namespace hearth::hub
