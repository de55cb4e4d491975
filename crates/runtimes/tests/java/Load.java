import java.util.ArrayList;

/** Allocates without an end, and prints a line once it has collected garbage many times. */
public class Load {
    static Object last;

    public static void main(String[] arguments) throws Exception {
        var kept = new ArrayList<byte[]>();
        for (int round = 0; ; round++) {
            for (int i = 0; i < 2000; i++) {
                byte[] block = new byte[16384];
                if (i % 100 == 0) {
                    if (kept.size() > 500) kept.clear();
                    kept.add(block);
                }
                last = block;
            }
            if (round == 60) System.out.println("ready");
            Thread.sleep(20);
        }
    }
}
