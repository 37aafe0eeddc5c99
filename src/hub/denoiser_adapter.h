#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/weight_files.h"
#include "nn/module.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// What diffusers puts before the names of a denoiser's modules.
inline constexpr const char* kDenoiserPrefix = "transformer.";

/// A LoRA of a denoiser, from a file in the keys of diffusers or PEFT (`transformer.NAME.lora_A.weight`) or
/// of kohya's scripts (`lora_unet_NAME.lora_down.weight`), whose matrices for several modules are taken
/// apart.
class DenoiserAdapter {
 public:
  /// UserError for keys of another kind, matrices that do not belong together, and a scale that nobody can
  /// know.
  explicit DenoiserAdapter(const fs::path& file_or_folder);

  /// By module of diffusers: rank, and what the product of the matrices is multiplied by.
  const std::map<std::string, nn::Adapter::Change, std::less<>>& modules() const { return modules_; }
  /// The matrices, as "transformer.NAME.lora_A.weight" and "transformer.NAME.lora_B.weight".
  const io::WeightFiles& files() const { return files_; }
  const io::TensorView& matrix(const std::string& module, char which) const;
  const fs::path& path() const { return files_.paths()[0]; }

 private:
  void read_kohya();
  void read_diffusers();
  void check();

  io::WeightFiles files_;
  std::map<std::string, nn::Adapter::Change, std::less<>> modules_;
};

/// Whether a file, or the file in a folder, is a LoRA of a denoiser.
bool is_denoiser_adapter(const fs::path& file_or_folder);

/// What the builder is told of a denoiser's adapter; with a path, what that file says of each module.
nn::Adapter denoiser_adapter(const recipe::Adapter& options);

/// What becomes of each module that has an adapter among `tensors`.
using AdaptedModules = std::map<std::string, nn::Adapter::Change, std::less<>>;
AdaptedModules adapted_modules(const nn::Adapter& adapter, const std::vector<nn::Tensor>& tensors);
/// Returns the factor by which a tensor is multiplied in a LoRA file: the module's scale alpha / rank for
/// "NAME.lora_B.weight", otherwise 1. With the scale in lora_B and alpha = rank, programs that read the
/// metadata (diffusers) and programs that read only tensors (ComfyUI) compute the same change.
double file_factor(const AdaptedModules& modules, const std::string& tensor);
/// Returns the adapter_config.json of these modules on the model in `base`, for files written with
/// file_factor. `r` is the most frequent rank.
std::string peft_config_json(const AdaptedModules& modules, const fs::path& base);
/// Returns the metadata of a file with diffusers' keys and file_factor: lora_adapter_metadata, and the
/// modules' scales, by which DenoiserAdapter divides lora_B when it reads the file.
std::map<std::string, std::string> diffusers_metadata(const AdaptedModules& modules);

/// Writes a LoRA in f32 for others: in diffusers' keys, or in kohya's with alphas and its metadata, where
/// modules that are one there have their matrices side by side. UserError for a module without a name there.
void write_diffusers_lora(const DenoiserAdapter& adapter, const fs::path& file);
void write_kohya_lora(const DenoiserAdapter& adapter, const fs::path& file);

}  // namespace hearth::hub
