#include "run/suggest_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "data/boxes/boxes.h"
#include "data/captions/captions.h"
#include "data/captions/image_files.h"
#include "data/dataset.h"
#include "data/images/image.h"
#include "data/masks/masks.h"
#include "text/conversation.h"
#include "text/jsonl.h"

// Each reader in src/data and src/text recognizes one layout of training data. This file tries the readers
// from the most specific layout to the most general one (a folder with masks could also be read as a folder
// per class), and chooses a recipe for the first match.

namespace hearth::run {
namespace {

constexpr auto kTextEndings =
    std::to_array<std::string_view>({".jsonl", ".json", ".txt", ".parquet", ".arrow"});
/// Max number of class names in the printed description of the data.
constexpr size_t kMaxNamed = 8;
/// Max records of a text file that are parsed to detect the format.
constexpr int64_t kMaxParsed = 1000;
/// Max image files whose headers are read to measure the typical size.
constexpr int64_t kMaxHeaders = 200;

bool is_text_file(const fs::path& path) {
  return std::ranges::find(kTextEndings, path.extension().string()) != kTextEndings.end();
}

std::string data_path(const fs::path& data) { return "data.path=" + data.string(); }

std::string counted(int64_t count, const char* noun) {
  const std::string_view plural =
      std::string_view(noun).find_first_of("sx", std::string_view(noun).size() - 1) != std::string_view::npos
          ? "es"
          : "s";
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : plural);
}

std::optional<Suggestion> suggest_for_boxes(const fs::path& data) {
  if (!data::has_boxes(data)) return std::nullopt;
  const data::BoxedImages train = data::read_boxes(data, "train"), test = data::read_boxes(data, "test");
  int64_t num_boxes = 0;
  for (const data::BoxedImage& image : train.images) num_boxes += std::ssize(image.boxes);
  Suggestion made{.overrides = {data_path(data)}};
  made.found = {fmt::format("{} training and {} test images with {} around objects of {}: {}",
                            train.images.size(), test.images.size(), counted(num_boxes, "box"),
                            counted(std::ssize(train.class_names), "class"),
                            listed(train.class_names, kMaxNamed))};
  // Chooses the smallest YOLOX for few images: a few hundred suffice to train it from scratch.
  made.recipe = train.images.size() < 2000 ? "detect-small" : "detect-yolox";
  return made;
}

std::optional<Suggestion> suggest_for_masks(const fs::path& data) {
  if (!data::has_masks(data)) return std::nullopt;
  const auto count = [&](const char* split) {
    return data::open_masks({.kind = "masks", .path = data, .split = split})->size();
  };
  return Suggestion{.found = {fmt::format("{} training and {} test images, each with a mask of classes",
                                          count("train"), count("test"))},
                    .recipe = "segment-unet",
                    .overrides = {data_path(data)}};
}

std::optional<Suggestion> suggest_for_captions(const fs::path& data) {
  if (!data::has_captions(data)) return std::nullopt;
  return Suggestion{
      .found = {fmt::format("{} with captions", counted(std::ssize(data::read_captions(data)), "image"))},
      .recipe = "flux-lora",
      .overrides = {data_path(data)},
      .needs_model = true};
}

/// Returns the median of the shorter sides of sampled images, in pixels.
int64_t typical_side(const data::Dataset& images) {
  std::vector<int64_t> sides;
  for (int64_t i = 0; i < std::min(images.size(), kMaxHeaders); ++i) {
    // Sample at even distances, because files are sorted by class.
    const fs::path path = images.where(i * images.size() / std::min(images.size(), kMaxHeaders));
    if (!fs::is_regular_file(path)) return images.image_size().shorter();
    const MappedFile file(path);
    sides.push_back(data::read_image_header(file.bytes(), path.string()).upright().shorter());
  }
  std::ranges::nth_element(sides, sides.begin() + std::ssize(sides) / 2);
  return sides[sides.size() / 2];
}

Suggestion suggest_for_classes(const fs::path& data, const char* kind, const char* recipe) {
  const auto open = [&](const char* split) {
    return data::open_dataset({.kind = kind, .path = data, .split = split});
  };
  const auto train = open("train");
  Suggestion made{.recipe = recipe, .overrides = {data_path(data)}};
  made.found = {fmt::format("{} training and {} test images of {}: {}", train->size(), open("test")->size(),
                            counted(std::ssize(train->class_names()), "class"),
                            listed(train->class_names(), kMaxNamed))};
  if (made.recipe != "images-resnet18") return made;
  const int64_t side = typical_side(*train);
  made.found.push_back(fmt::format("typical image: {} pixels on its shorter side", side));
  for (const int64_t size : {64, 128}) {
    if (side >= size)
      made.overrides.resize(1), made.overrides.push_back(fmt::format("data.image_size={}", size));
  }
  return made;
}

Suggestion suggest_for_texts(const fs::path& file) {
  const text::DataFile data(file);
  std::map<RecordFormat, int64_t> formats;
  int64_t num_records = 0;
  text::Faults faults;
  const bool is_plain = data.kind() == text::DataFile::Kind::text;
  data.for_each(
      [&](const text::Entry& entry) {
        if (num_records++ < kMaxParsed && !is_plain)
          ++formats[text::read_record(text::parse_record(entry.text), {}).format];
      },
      faults);
  Suggestion made{.recipe = "llama-lora", .overrides = {"data=" + file.string()}, .needs_model = true};
  if (is_plain) {
    made.found = {"plain text, " + human_bytes(std::ssize(data.bytes()))};
    return made;
  }
  if (formats.empty()) throw UserError(faults.sentences().at(0));
  std::vector<std::string> names;
  for (const auto& [format, count] : formats) names.emplace_back(name_of(format));
  made.found = {
      fmt::format("{} for a language model ({})", counted(num_records, "record"), fmt::join(names, ", "))};
  if (faults.total() > 0)
    made.found.push_back(fmt::format("{} cannot be used; the first: {}", counted(faults.total(), "record"),
                                     faults.sentences().at(0)));
  if (formats.contains(RecordFormat::preference)) made.recipe = "llama-dpo";
  return made;
}

/// Suggests a recipe for a folder that contains exactly one text file; nullopt for other folders.
std::optional<Suggestion> of_text_folder(const fs::path& folder) {
  std::vector<fs::path> files = list_folder(folder);
  std::erase_if(files, [](const fs::path& path) { return !is_text_file(path); });
  if (files.size() != 1) return std::nullopt;
  return suggest_for_texts(files[0]);
}

}  // namespace

bool names_data(const fs::path& path) {
  // An argument with '=', such as data=FILE.jsonl, is an override, not a path.
  if (path.string().find('=') != std::string::npos && !path_exists(path)) return false;
  return fs::is_directory(path) || is_text_file(path) || path.extension() == ".csv" ||
         path.extension() == ".tsv";
}

Suggestion suggest_recipe(const fs::path& data) {
  if (!path_exists(data))
    user_error("there is no data at '{}'; hearth train needs a recipe or a folder of data", data.string());
  if (is_text_file(data)) return suggest_for_texts(data);
  for (const char* config : {kModelConfig, kModelIndex}) {
    if (!fs::exists(data / config)) continue;
    user_error("'{}' is a model; give the data first: hearth train DATA model={}", data.string(),
               data.string());
  }
  if (fs::exists(data / kRunRecipe))
    user_error("'{}' is a run; continue it with hearth train --resume --out {}", data.string(),
               data.string());
  for (const auto suggest : {suggest_for_boxes, suggest_for_masks, suggest_for_captions}) {
    if (auto made = suggest(data)) return *made;
  }
  const std::vector<fs::path> files = data::files_below(data);
  const auto has_file = [&](std::string_view beginning) {
    return std::ranges::any_of(
        files, [&](const fs::path& path) { return path.filename().string().starts_with(beginning); });
  };
  if (has_file("train-images-idx3-ubyte")) return suggest_for_classes(data, "idx", "mnist-mlp");
  if (has_file("data_batch_1.bin")) return suggest_for_classes(data, "cifar10", "cifar10-simplecnn");
  const auto num_images = std::ranges::count_if(files, data::is_image_file);
  // Remove a trailing slash, which shell completion adds.
  const fs::path root = (data / "").lexically_normal().parent_path();
  const auto num_loose = std::ranges::count_if(
      files, [&](const fs::path& path) { return path.parent_path() == root && data::is_image_file(path); });
  if (num_images > num_loose) return suggest_for_classes(data, "folder", "images-resnet18");
  if (num_images > 0)
    user_error(
        "{}: {} without labels; move them into a folder per class, or add captions, masks or boxes "
        "(docs/images.md, docs/image-generation.md, docs/segmentation.md, docs/detection.md)",
        data.string(), counted(num_images, "image"));
  if (auto made = of_text_folder(data)) return *made;
  user_error(
      "{}: no training data was recognized; Hearth reads a folder per class, images with masks, boxes (COCO, "
      "VOC, "
      "YOLO) or captions, and JSONL or text files; docs/images.md shows the layouts",
      data.string());
}

}  // namespace hearth::run
