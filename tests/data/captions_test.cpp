#include "data/captions/captions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "files.h"

namespace hearth::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void put_captioned(const fs::path& path, int64_t height = 6, int64_t width = 5) {
  put_file(path, encode_png(speckled(height, width, 3)));
}

/// "NAME: CAPTION" of each image, NAME from the folder on.
std::vector<std::string> read(const fs::path& folder, std::string_view trigger = "") {
  std::vector<std::string> lines;
  for (const CaptionedImage& image : read_captions(folder, trigger))
    lines.push_back(fmt::format("{}: {}", image.file.lexically_relative(folder).string(), image.caption));
  return lines;
}

TEST(Captions, TextBesideTheImage) {
  const TemporaryFolder folder;
  put_captioned(folder.path() / "b.png", 8, 3);
  put_file(folder.path() / "b.txt", "\xEF\xBB\xBF a red\r\n\r\nhouse \n");
  put_file(folder.path() / "a.jpg", encode_jpeg(speckled(4, 9, 3)));
  put_file(folder.path() / "a.txt", "");
  put_captioned(folder.path() / "in/here/c.PNG");
  put_file(folder.path() / "in/here/c.txt", "deep");
  put_captioned(folder.path() / ".hidden/d.png");
  put_captioned(folder.path() / ".e.png");
  EXPECT_THAT(read(folder.path()), ElementsAre("a.jpg: ", "b.png: a red house", "in/here/c.PNG: deep"));
  const auto images = read_captions(folder.path());
  EXPECT_EQ(images[0].size, Extent(4, 9));
  EXPECT_EQ(images[1].size, Extent(8, 3));
  EXPECT_EQ(images[2].repeats, 1);
}

TEST(Captions, LinesOfMetadataGoBeforeText) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "in/b.png", "in/c.png"}) put_captioned(folder.path() / name);
  put_file(folder.path() / "metadata.jsonl",
           "{\"file_name\": \"in/../a.png\", \"text\": \"one\", \"width\": [1, {}]}\n\n"
           "{\"text\": \"tw\\u006f\", \"file_name\": \"in/b.png\"}");
  put_file(folder.path() / "in/metadata.jsonl", "{\"file_name\": \"c.png\", \"text\": \"three\"}\n");
  put_file(folder.path() / "a.txt", "not this");
  const auto expected = ElementsAre("a.png: one", "in/b.png: two", "in/c.png: three");
  EXPECT_THAT(read(folder.path()), expected);
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_THAT(read("."), expected);
  fs::current_path(before);
}

TEST(Captions, TxtGoesBeforeCaption) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "b.png", "3_dog/c.png"}) put_captioned(folder.path() / name);
  put_file(folder.path() / "a.caption", "kohya's");
  put_file(folder.path() / "b.caption", "not this");
  put_file(folder.path() / "b.txt", "text");
  EXPECT_THAT(read(folder.path()), ElementsAre("3_dog/c.png: dog", "a.png: kohya's", "b.png: text"));
  EXPECT_EQ(describe_captions(read_captions(folder.path())),
            "2 captions from files, 1 from the folder's name");
}

TEST(Captions, TablesOfCommas) {
  const TemporaryFolder folder;
  for (const char* name : {"a.png", "in/b.png", "c, d.png"}) put_captioned(folder.path() / name);
  put_file(
      folder.path() / "metadata.csv",
      "\xEF\xBB\xBFwidth,text,file_name\r\n5,\"a \"\"red\"\", house\",a.png\r\n,\"two\nlines\",in/b.png\n\n"
      "7,three,\"c, d.png\"");
  EXPECT_THAT(read(folder.path()),
              ElementsAre("a.png: a \"red\", house", "c, d.png: three", "in/b.png: two lines"));
  const auto error = [&](std::string_view text) { return error_of([&] { parse_caption_csv(text, "t"); }); };
  EXPECT_EQ(error("file_name,prompt\na,b"), "no error");
  EXPECT_THAT(error("file,text\na,b"),
              HasSubstr("t:1: expected the columns file_name and text, got file,text"));
  EXPECT_THAT(error("file_name,text\na,b,c"), HasSubstr("t:2: expected 2 fields"));
  EXPECT_THAT(error("file_name,text\n\"a\nb,c"), HasSubstr("t:2: expected the end of a field in quotes"));
  EXPECT_THAT(error("file_name,text\n\"a\"b,c"), HasSubstr("t:2: expected a comma"));
  EXPECT_THAT(error("file_name,text\na,\xE9"), HasSubstr("t:2: expected a caption in UTF-8"));
}

TEST(Captions, ParquetIsConverted) {
  const TemporaryFolder folder;
  put_file(folder.path() / "data/train-0.parquet", "PAR1PAR1");
  EXPECT_THAT(error_of([&] { read_captions(folder.path()); }),
              testing::AllOf(HasSubstr("train-0.parquet: Parquet is not supported"), HasSubstr("python3 -c"),
                             HasSubstr("metadata.jsonl"), HasSubstr("set data.path=")));
}

TEST(Captions, ImagesOfTheClassAreNotTrainedOn) {
  const TemporaryFolder folder;
  put_captioned(folder.path() / "img/10_sks dog/a.png");
  put_captioned(folder.path() / "reg/1_dog/b.png");
  put_captioned(folder.path() / "reg/1_dog/c.png");
  EXPECT_THAT(read(folder.path()), ElementsAre("img/10_sks dog/a.png: sks dog"));
  const fs::path prior = regularization_folder(folder.path());
  EXPECT_EQ(prior, folder.path() / "reg");
  EXPECT_THAT(read(prior), ElementsAre("1_dog/b.png: dog", "1_dog/c.png: dog"));
  EXPECT_EQ(regularization_folder(prior), "");
}

TEST(Captions, ATriggerComesOnce) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c"}) put_captioned(folder.path() / fmt::format("{}.png", name));
  EXPECT_THAT(read(folder.path(), "sks dog"),
              ElementsAre("a.png: sks dog", "b.png: sks dog", "c.png: sks dog"));
  put_file(folder.path() / "a.txt", "on a bench");
  EXPECT_THAT(error_of([&] { read(folder.path(), "sks dog"); }), HasSubstr("found none for 2 of them"));
  put_file(folder.path() / "b.txt", "photo of sks dog");
  put_file(folder.path() / "c.txt", "\n");
  EXPECT_THAT(read(folder.path(), "sks dog"),
              ElementsAre("a.png: sks dog, on a bench", "b.png: photo of sks dog", "c.png: sks dog"));
}

TEST(Captions, FoldersThatRepeat) {
  const TemporaryFolder top;
  const fs::path folder = top.path() / "5_ignored";
  put_captioned(folder / "a.png");
  put_file(folder / "a.txt", "top");
  put_captioned(folder / "10_sks dog/b.png");
  put_captioned(folder / "10_sks dog/c.png");
  put_file(folder / "10_sks dog/c.txt", "own");
  put_captioned(folder / "2024_trip/d.png");
  put_file(folder / "2024_trip/d.txt", "year");
  const auto images = read_captions(folder);
  EXPECT_THAT(read(folder), ElementsAre("10_sks dog/b.png: sks dog", "10_sks dog/c.png: own",
                                        "2024_trip/d.png: year", "a.png: top"));
  EXPECT_EQ(images[0].repeats, 10);
  EXPECT_EQ(images[1].repeats, 10);
  EXPECT_EQ(images[2].repeats, 1);
  EXPECT_EQ(images[3].repeats, 1);
}

TEST(Captions, ALinkInACircleIsGoneThroughOnce) {
  const TemporaryFolder folder;
  put_captioned(folder.path() / "a.png");
  put_file(folder.path() / "a.txt", "one");
  fs::create_directory_symlink(folder.path(), folder.path() / "self");
  EXPECT_THAT(read(folder.path()), ElementsAre("a.png: one"));
}

TEST(Captions, MistakesAreExplained) {
  const TemporaryFolder folder;
  const fs::path& path = folder.path();
  const auto error = [&] { return error_of([&] { read_captions(path); }); };
  EXPECT_THAT(error_of([&] { read_captions(path / "none"); }), HasSubstr("set data.path=FOLDER"));
  EXPECT_THAT(error(), HasSubstr("expected images (PNG, JPEG, "));
  for (const char* name : {"a.png", "b.png", "c.png", "d.png", "e.png"}) put_captioned(path / name);
  put_file(path / "c.txt", "there");
  EXPECT_EQ(
      error(),
      fmt::format("expected a caption for each of the 5 images in {}, found none for 4 of "
                  "them (a.png, b.png, d.png, ...); write a.txt into the folder of the first such image, "
                  "or add a line for it to metadata.jsonl",
                  path.string()));
  for (const char* name : {"a.txt", "b.txt", "d.txt", "e.txt"}) put_file(path / name, "x");
  put_file(path / "a.txt", "caf\xE9");
  EXPECT_EQ(error(), (path / "a.txt").string() +
                         ": expected a caption in UTF-8, but it breaks at byte 4; save it as UTF-8");
  put_file(path / "a.txt", "x");
  put_file(path / "f.heic", "x");
  EXPECT_THAT(error(), HasSubstr("f.heic: this image format is not supported; convert the file to PNG, "));
  fs::remove(path / "f.heic");
  put_file(path / "b.png", "no picture");
  EXPECT_THAT(error(),
              HasSubstr("b.png: this is not an image of a supported format; convert it to one (PNG, "));
}

TEST(Captions, MistakesInMetadataAreExplained) {
  const TemporaryFolder folder;
  put_captioned(folder.path() / "a.png");
  const std::string name = (folder.path() / "metadata.jsonl").string();
  const auto error = [&](std::string_view text) {
    put_file(name, text);
    return error_of([&] { read_captions(folder.path()); });
  };
  EXPECT_EQ(error("{\"file_name\": \"a.png\", \"text\": \"x\"}"), "no error");
  EXPECT_EQ(error("\n{\"file_name\": \"b.png\", \"text\": \"x\"}"),
            fmt::format("{}:2: expected the name of an image in {}, but 'b.png' does not exist", name,
                        folder.path().string()));
  EXPECT_THAT(error("{\"file_name\": \"/etc/a.png\", \"text\": \"x\"}"), HasSubstr("does not exist"));
  const std::string line = "{\"file_name\": \"a.png\", \"text\": \"x\"}\n";
  EXPECT_THAT(error(line + line), HasSubstr(":2: 'a.png' has a second caption here; delete one"));
  EXPECT_EQ(error("{\"file_name\": \"a.png\"}"),
            name + ":1: expected \"file_name\" and \"text\" (or \"prompt\"), found no \"text\"");
  EXPECT_THAT(error("{\"text\": \"a.png\"}"), HasSubstr("found no \"file_name\""));
  EXPECT_THAT(error("{\"file_name\": 3, \"text\": \"x\"}"), HasSubstr("expected text for \"file_name\""));
  EXPECT_THAT(error("[]"), HasSubstr(":1: expected an object with file_name and text"));
  EXPECT_THAT(error("{\"file_name\": "), HasSubstr(":1: expected text for"));
  EXPECT_THAT(error(line + "{\"x\" 1}"), HasSubstr(":2: expected JSON in UTF-8, but it breaks at byte 6"));
}

TEST(Captions, APromptStandsForAText) {
  const std::vector<CaptionLine> lines = parse_caption_lines(
      "{\"file_name\": \"a.png\", \"prompt\": \"a cat\"}\n"
      "{\"prompt\": \"a cat\", \"file_name\": \"b.png\", \"text\": \"a dog\"}\n",
      "metadata.jsonl");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].text, "a cat");
  EXPECT_EQ(lines[1].text, "a dog");
}

TEST(Captions, LinksOutOfTheFolderAreReadWhereAllowed) {
  const TemporaryFolder folder, elsewhere;
  put_captioned(elsewhere.path() / "secret.png");
  fs::create_symlink(elsewhere.path() / "secret.png", folder.path() / "a.png");
  put_file(folder.path() / "metadata.jsonl", "{\"file_name\": \"a.png\", \"text\": \"x\"}");
  EXPECT_THAT(error_of([&] { read_captions(folder.path()); }),
              AllOf(HasSubstr("metadata.jsonl:1: "), HasSubstr("data.allow_outside=true")));
  EXPECT_EQ(read_captions(folder.path(), "", Exif::apply, true).size(), 1U);
}

}  // namespace
}  // namespace hearth::data
