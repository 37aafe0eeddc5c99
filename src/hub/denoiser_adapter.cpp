// Reader of LoRA files of denoisers. The formats differ in tensor names, in modules (kohya's are those of the
// original FLUX, in which query, key and value are fused) and in the place of the scale: alpha tensors
// (kohya), alpha in the metadata (diffusers), or multiplied into lora_B (files written by Hearth, see
// file_factor()). All are converted to one form: lora_A and lora_B of diffusers' modules, and a scale for
// each module.
#include "hub/denoiser_adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "hub/adapter.h"
#include "hub/floats.h"
#include "hub/flux_names.h"
#include "hub/model_folder.h"

namespace hearth::hub {
namespace {

using io::TensorView;
using Change = nn::Adapter::Change;
using Json = nlohmann::ordered_json;
using Modules = std::map<std::string, Change, std::less<>>;

constexpr std::string_view kEndA = ".lora_A.weight", kEndB = ".lora_B.weight", kEndAlpha = ".alpha";
constexpr std::string_view kDown = ".lora_down.weight", kUp = ".lora_up.weight";
constexpr std::string_view kKohyaPrefix = "lora_unet_";
constexpr const char* kMetadataKey = "lora_adapter_metadata";
/// Metadata key under which Hearth stores the scales that it multiplied into lora_B, to undo this when it
/// reads the file.
constexpr const char* kScaledMetadataKey = "hearth_lora_metadata";
constexpr int64_t kMaxRank = 1 << 16;
/// Extensions of weight files.
constexpr std::string_view kExtensions[] = {".safetensors", ".pt", ".pth", ".bin"};
/// Prefixes that various programs add to diffusers' module names in LoRA files.
constexpr std::string_view kPrefixes[] = {kDenoiserPrefix, kAdapterPrefix, "diffusion_model."};

bool any_ends_with(const io::WeightFiles& files, std::string_view ending) {
  return std::ranges::any_of(files.tensors(),
                             [&](const TensorView& tensor) { return tensor.name.ends_with(ending); });
}

bool is_matrix(const TensorView& tensor) { return tensor.shape.rank() == 2 && is_floating(tensor.dtype); }

/// Returns `name` without `ending`; nullopt if the name does not end with it.
std::optional<std::string> without(const std::string& name, std::string_view ending) {
  if (!name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

double scalar_of(const TensorView& tensor, const fs::path& path) {
  const bool is_one = is_floating(tensor.dtype) && tensor.shape.num_elements() == 1;
  const double value = is_one ? static_cast<double>(floats_of(tensor)[0]) : NAN;
  if (!std::isfinite(value))
    user_error("{}: expected one finite number in '{}', found shape {} and dtype {}", path.string(),
               tensor.name, to_string(tensor.shape), dtype_name(tensor.dtype));
  return value;
}

/// Returns a copy of the values as bytes, for a TensorView.
std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TensorView view_of(std::string name, const Shape& shape, const std::vector<std::byte>& bytes) {
  return {.name = std::move(name), .dtype = DType::f32, .shape = shape, .bytes = bytes};
}

/// Parses PEFT's LoRA configuration from the metadata of a safetensors file; null if no key starts with
/// "transformer.".
std::unique_ptr<ModuleRule> rule_in(const std::string& text, const std::string& where) {
  const Json all = parse_json_object<Json>(text, where);
  Json config = Json::object();
  const std::string prefix = kDenoiserPrefix;
  for (const auto& [key, value] : all.items()) {
    if (key.starts_with(prefix)) config[key.substr(prefix.size())] = value;
  }
  if (config.empty()) return nullptr;
  if (const Json dora = config.value("use_dora", Json()); dora == true)
    refuse_value(where, "transformer.use_dora", {{"transformer.use_dora", dora}}, "false (a plain LoRA)");
  const Json rank = config.value("r", Json()), alpha = config.value("lora_alpha", Json());
  if (!rank.is_number_integer() || rank < 1 || rank > kMaxRank || !alpha.is_number())
    user_error("{}: expected transformer.r and transformer.lora_alpha as numbers in its {}, got {} and {}",
               where, kMetadataKey, rank.dump().substr(0, 60), alpha.dump().substr(0, 60));
  return std::make_unique<ModuleRule>(config, where);
}

fs::path file_of(const fs::path& file_or_folder) {
  return fs::exists(file_or_folder / kRunRecipe) ? run_weights(file_or_folder, true)
                                                 : adapter_weights(file_or_folder);
}

/// Returns the most frequent value of of(change) over all modules.
template <typename Of>
double most_frequent(const Modules& modules, Of of) {
  std::map<double, int> counts;
  for (const auto& [name, change] : modules) ++counts[of(change)];
  return std::ranges::max_element(counts, {}, &std::pair<const double, int>::second)->first;
}

double rank_of(const Change& change) { return static_cast<double>(change.rank); }
/// Returns alpha = scale * rank, rounded to f32 so that JSON shows 0.1 rather than 0.10000000149.
double alpha_of(const Change& change) {
  return static_cast<double>(static_cast<float>(change.scale * rank_of(change)));
}

Json config_of(const Modules& modules) {
  const double rank = most_frequent(modules, rank_of), alpha = most_frequent(modules, alpha_of);
  Json config = {{"peft_type", "LORA"}, {"r", json_number(rank)}, {"lora_alpha", json_number(alpha)}};
  config["target_modules"] = Json::array();
  config["rank_pattern"] = config["alpha_pattern"] = Json::object();
  for (const auto& [module, change] : modules) {
    config["target_modules"].push_back(module);
    if (rank_of(change) != rank) config["rank_pattern"][module] = change.rank;
    if (alpha_of(change) != alpha) config["alpha_pattern"][module] = json_number(alpha_of(change));
  }
  config["bias"] = "none";
  config["lora_dropout"] = 0.0;
  return config;
}

Modules without_scales(Modules modules) {
  for (auto& [name, change] : modules) change.scale = 1;
  return modules;
}

}  // namespace

DenoiserAdapter::DenoiserAdapter(const fs::path& file_or_folder) : files_(file_of(file_or_folder)) {
  if (any_ends_with(files_, kDown)) {
    read_kohya();
  } else {
    read_diffusers();
  }
  check();
}

const TensorView& DenoiserAdapter::matrix(const std::string& module, char which) const {
  return *files_.find(fmt::format("{}{}.lora_{}.weight", kDenoiserPrefix, module, which));
}

void DenoiserAdapter::read_diffusers() {
  const std::string where = path().string();
  const auto texts = files_.metadata();
  const auto scaled = texts.find(kScaledMetadataKey);
  const auto metadata_entry = scaled == texts.end() ? texts.find(kMetadataKey) : scaled;
  std::shared_ptr<const ModuleRule> rule;
  if (metadata_entry != texts.end()) rule = rule_in(metadata_entry->second, where);
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> memory;
  std::map<std::string, double> alphas;
  for (TensorView tensor : files_.tensors()) {
    const auto prefix =
        std::ranges::find_if(kPrefixes, [&](std::string_view one) { return tensor.name.starts_with(one); });
    if (prefix == std::end(kPrefixes))
      user_error("{}: expected names of a denoiser's LoRA like transformer.NAME.lora_A.weight, got '{}'",
                 where, tensor.name);
    if (*prefix == kAdapterPrefix && !rule) rule = read_adapter_config(path()).rule;
    tensor.name.erase(0, prefix->size());
    if (const auto module = without(tensor.name, kEndAlpha)) {
      alphas[*module] = scalar_of(tensor, path());
      continue;
    }
    if (const auto module = without(tensor.name, kEndA); module && tensor.shape.rank() == 2)
      modules_[*module] = {.rank = tensor.shape[0]};
    tensor.name = kDenoiserPrefix + tensor.name;
    tensors.push_back(std::move(tensor));
  }
  for (auto& [module, change] : modules_) {
    if (const auto alpha = alphas.find(module); alpha != alphas.end()) {
      change.scale = alpha->second / rank_of(change);
    } else if (rule) {
      change.scale = rule->change_of(module).scale;
    }
  }
  for (TensorView& tensor : tensors) {
    const double factor = scaled == texts.end() ? 1 : file_factor(modules_, tensor.name);
    if (factor == 1 || factor == 0) continue;
    std::vector<float> values = floats_of(tensor);
    for (float& value : values) value = static_cast<float>(static_cast<double>(value) / factor);
    memory.push_back(bytes_of(values));
    tensor = view_of(tensor.name, tensor.shape, memory.back());
  }
  files_.show(std::move(tensors), std::move(memory));
}

namespace {

/// LoRA matrices of one module in kohya's format; the module may be fused (qkv).
struct KohyaPair {
  const TensorView* down = nullptr;
  const TensorView* up = nullptr;
  std::optional<double> alpha;
};

/// Splits the LoRA matrices of a fused module into those of its parts (such as query, key and value). up
/// [out, rank] is split by rows. down [rank, in] is used by all parts, unless up is block diagonal: then each
/// part uses its own rows of down.
class KohyaSplitter {
 public:
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> memory;
  Modules modules;

  KohyaSplitter(const FluxModule& module, const KohyaPair& pair, const fs::path& path)
      : module_(module), down_(floats_of(*pair.down)), up_(floats_of(*pair.up)) {
    rank_ = pair.down->shape[0];
    columns_ = pair.down->shape[1];
    rows_ = pair.up->shape[0];
    scale_ = pair.alpha.value_or(static_cast<double>(rank_)) / static_cast<double>(rank_);
    if (module.swapped)
      std::rotate(up_.begin(), up_.begin() + static_cast<int64_t>(up_.size() / 2), up_.end());
    split(path);
  }

 private:
  void split(const fs::path& path) {
    const auto count = static_cast<int64_t>(module_.parts.size());
    part_rows_ = count == 1 ? rows_ : count == 3 ? rows_ / 3 : columns_;
    const int64_t last = rows_ - part_rows_ * (count - 1);
    if (last < 1 || (count == 3 && last != part_rows_))
      user_error("{}: expected the matrices of '{}' for {} modules, found {} rows", path.string(),
                 module_.original, count, rows_);
    const int64_t share = count > 1 && is_block_diagonal(count) ? rank_ / count : rank_;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t end = i + 1 == count ? rows_ : (i + 1) * part_rows_;
      add(module_.parts[static_cast<size_t>(i)], {i * part_rows_, end}, share < rank_ ? i * share : 0, share);
    }
  }

  /// True if up_ is block diagonal: part i is nonzero only in the i-th of `count` equal ranges of the rank.
  bool is_block_diagonal(int64_t count) const {
    if (rank_ % count != 0) return false;
    const int64_t share = rank_ / count;
    for (int64_t i = 0; i < std::ssize(up_); ++i) {
      const int64_t part = std::min(i / rank_ / part_rows_, count - 1);
      if (i % rank_ / share != part && up_[static_cast<size_t>(i)] != 0) return false;
    }
    return true;
  }

  void add(const std::string& module, Range rows, int64_t first, int64_t rank) {
    std::vector<float> a(down_.begin() + first * columns_, down_.begin() + (first + rank) * columns_);
    std::vector<float> b;
    for (int64_t row = rows.begin; row < rows.end; ++row)
      b.insert(b.end(), up_.begin() + row * rank_ + first, up_.begin() + row * rank_ + first + rank);
    modules[module] = {.rank = rank, .scale = scale_};
    const std::string name = kDenoiserPrefix + module;
    memory.push_back(bytes_of(a));
    tensors.push_back(view_of(name + std::string(kEndA), {rank, columns_}, memory.back()));
    memory.push_back(bytes_of(b));
    tensors.push_back(view_of(name + std::string(kEndB), {rows.end - rows.begin, rank}, memory.back()));
  }

  const FluxModule& module_;
  std::vector<float> down_, up_;
  int64_t rank_ = 0, columns_ = 0, rows_ = 0;
  int64_t part_rows_ = 0;  ///< rows of up_ per part; the last part has the remaining rows
  double scale_ = 1;
};

std::map<std::string, KohyaPair> pairs_in(const io::WeightFiles& files, const fs::path& path) {
  std::map<std::string, KohyaPair> pairs;
  for (const TensorView& tensor : files.tensors()) {
    if (const auto module = without(tensor.name, kDown)) {
      pairs[*module].down = &tensor;
    } else if (const auto other = without(tensor.name, kUp)) {
      pairs[*other].up = &tensor;
    } else if (const auto scaled = without(tensor.name, kEndAlpha)) {
      pairs[*scaled].alpha = scalar_of(tensor, path);
    } else {
      user_error("{}: expected lora_down, lora_up and alpha of modules, got '{}'", path.string(),
                 tensor.name);
    }
  }
  return pairs;
}

/// True if the LoRA is for FLUX.2: it has shared modulation modules, or linear1 of a single-stream block has
/// 9 times as many rows as columns (FLUX.1: 7 times).
bool is_flux2(const std::map<std::string, KohyaPair>& pairs) {
  return std::ranges::any_of(pairs, [](const auto& entry) {
    const auto& [name, pair] = entry;
    if (name.find("stream_modulation") != std::string::npos) return true;
    return name.ends_with("_linear1") && pair.up != nullptr && pair.down != nullptr && is_matrix(*pair.up) &&
           is_matrix(*pair.down) && pair.up->shape[0] == 9 * pair.down->shape[1];
  });
}

/// Returns the modules of a FLUX model by the names that kohya's LoRA files use.
std::map<std::string, FluxModule> kohya_modules(const FluxBlocks& blocks) {
  std::map<std::string, FluxModule> modules;
  for (FluxModule& module : flux_modules(blocks)) {
    std::string name = module.original;
    std::ranges::replace(name, '.', '_');
    modules[std::string(kKohyaPrefix) + name] = std::move(module);
  }
  return modules;
}

}  // namespace

void DenoiserAdapter::read_kohya() {
  const std::vector<std::string> names = files_.names();
  const std::map<std::string, KohyaPair> pairs = pairs_in(files_, path());
  const auto known = kohya_modules({.flux2 = is_flux2(pairs),
                                    .num_double = num_blocks(names, "double_blocks"),
                                    .num_single = num_blocks(names, "single_blocks")});
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> memory;
  for (const auto& [name, pair] : pairs) {
    const auto module = known.find(name);
    if (module == known.end())
      user_error("{}: '{}' is not a module of a FLUX transformer", path().string(), name);
    const bool fits = pair.down != nullptr && pair.up != nullptr && is_matrix(*pair.down) &&
                      is_matrix(*pair.up) && pair.up->shape[1] == pair.down->shape[0];
    if (!fits)
      user_error("{}: expected lora_down [rank, in] and lora_up [out, rank] of '{}'", path().string(), name);
    KohyaSplitter parts(module->second, pair, path());
    modules_.insert(parts.modules.begin(), parts.modules.end());
    std::ranges::move(parts.tensors, std::back_inserter(tensors));
    std::ranges::move(parts.memory, std::back_inserter(memory));
  }
  files_.show(std::move(tensors), std::move(memory));
}

void DenoiserAdapter::check() {
  if (modules_.empty())
    user_error("{}: not a LoRA of a denoiser: it has no lora_A matrices", path().string());
  for (const TensorView& tensor : files_.tensors()) {
    const auto of_a = without(tensor.name, kEndA), of_b = without(tensor.name, kEndB);
    const std::string module = of_a.value_or(of_b.value_or(""))
                                   .erase(0, of_a || of_b ? std::string_view(kDenoiserPrefix).size() : 0);
    const auto found = modules_.find(module);
    const bool fits = found != modules_.end() && is_matrix(tensor) && found->second.rank <= kMaxRank &&
                      tensor.shape[of_a ? 0 : 1] == found->second.rank;
    if (!fits)
      user_error("{}: expected lora_A [rank, in] and lora_B [out, rank] of modules, found '{}' with shape {}",
                 path().string(), tensor.name, to_string(tensor.shape));
  }
  for (const auto& [module, change] : modules_) {
    if (files_.find(kDenoiserPrefix + module + std::string(kEndB)) == nullptr)
      user_error("{}: '{}' has lora_A but no lora_B", path().string(), module);
    if (!std::isfinite(change.scale))
      user_error("{}: expected a finite alpha of '{}', got {}", path().string(), module, change.scale);
  }
}

bool is_denoiser_adapter(const fs::path& file_or_folder) {
  fs::path file = file_or_folder;
  if (fs::is_directory(file)) {
    const std::array<fs::path, 3> candidates = {file / kBestWeights, file / kDiffusersLora,
                                                file / kAdapterFile};
    const auto found = std::ranges::find_if(candidates, [](const fs::path& one) { return fs::exists(one); });
    if (found == candidates.end()) return false;
    file = *found;
  }
  if (std::ranges::find(kExtensions, file.extension()) == std::end(kExtensions) || !fs::is_regular_file(file))
    return false;
  const io::WeightFiles opened(file);
  return std::ranges::any_of(opened.tensors(), [](const TensorView& tensor) {
    const std::string_view name = tensor.name;
    if (name.starts_with(kKohyaPrefix)) return true;
    return name.ends_with(kEndA) && name.find("transformer_blocks.") != std::string_view::npos;
  });
}

nn::Adapter denoiser_adapter(const recipe::Adapter& options) {
  recipe::Adapter plain = options;
  plain.path.clear();
  nn::Adapter adapter = builder_adapter(plain, std::nullopt);
  adapter.file_prefix = kDenoiserPrefix;
  if (options.path.empty()) return adapter;
  const auto read = std::make_shared<const DenoiserAdapter>(options.path);
  adapter.rank = 1;
  adapter.dropout = options.dropout;
  adapter.quantized = ops::quantization_from_name(options.quantize);
  adapter.targets = {"target_modules"};
  adapter.rule_name = read->path().string();
  adapter.rule = [read](std::string_view module) {
    const auto found = read->modules().find(module);
    return found == read->modules().end() ? Change{} : found->second;
  };
  return adapter;
}

AdaptedModules adapted_modules(const nn::Adapter& adapter, const std::vector<nn::Tensor>& tensors) {
  AdaptedModules modules;
  for (const nn::Tensor& tensor : tensors) {
    const auto module = without(tensor.name, kEndA);
    if (tensor.adapter && module) modules[*module] = adapter.change_of(*module);
  }
  return modules;
}

double file_factor(const AdaptedModules& modules, const std::string& tensor) {
  auto module = without(tensor, kEndB);
  if (!module) return 1;
  if (module->starts_with(kDenoiserPrefix)) module->erase(0, std::string_view(kDenoiserPrefix).size());
  const auto found = modules.find(*module);
  return found == modules.end() ? 1 : found->second.scale;
}

std::string peft_config_json(const AdaptedModules& modules, const fs::path& base) {
  Json config = config_of(without_scales(modules));
  config["base_model_name_or_path"] = fs::absolute(base).lexically_normal().string();
  return config.dump(2) + "\n";
}

std::map<std::string, std::string> diffusers_metadata(const AdaptedModules& modules) {
  const auto packed = [](const Modules& of) {
    Json json = Json::object();
    const Json config = config_of(of);
    for (const auto& [key, value] : config.items()) json[kDenoiserPrefix + key] = value;
    return json.dump();
  };
  return {{kMetadataKey, packed(without_scales(modules))}, {kScaledMetadataKey, packed(modules)}};
}

}  // namespace hearth::hub
