import com.getui.push.v2.sdk.core.DefaultJson;
import com.getui.push.v2.sdk.dto.req.Audience;
import com.getui.push.v2.sdk.dto.req.AuthDTO;
import com.getui.push.v2.sdk.dto.req.Settings;
import com.getui.push.v2.sdk.dto.req.message.PushChannel;
import com.getui.push.v2.sdk.dto.req.message.PushDTO;
import com.getui.push.v2.sdk.dto.req.message.PushMessage;
import com.getui.push.v2.sdk.dto.req.message.android.AndroidDTO;
import com.getui.push.v2.sdk.dto.req.message.android.GTNotification;
import com.getui.push.v2.sdk.dto.req.message.android.ThirdNotification;
import com.getui.push.v2.sdk.dto.req.message.android.Ups;
import com.getui.push.v2.sdk.dto.req.message.ios.Alert;
import com.getui.push.v2.sdk.dto.req.message.ios.Aps;
import com.getui.push.v2.sdk.dto.req.message.ios.IosDTO;

/**
 * Prints a login and a push as GeTui's own SDK words them; tests/foreign/test_getui.py reads getui.json.
 *
 * <p>From an empty folder, with ROOT the repository's:
 *
 * <pre>
 * mvn dependency:copy-dependencies -f ROOT/tests/foreign/vectors/getui-pom.xml -DoutputDirectory=$PWD/lib
 * java -cp 'lib/*' ROOT/tests/foreign/vectors/Getui.java > ROOT/tests/foreign/vectors/getui.json
 * </pre>
 *
 * <p>The login's time is that of its making, and so is its sign.
 */
public final class Getui {
    private static final String TITLE = "a title";
    private static final String TEXT = "a text";

    private Getui() {}

    public static void main(String[] arguments) {
        DefaultJson json = new DefaultJson();
        String login = json.toJson(AuthDTO.build("appkey", "a-secret"));
        System.out.println("{\"login\": " + login + ",\n \"push\": " + json.toJson(push()) + "}");
    }

    private static PushDTO<Audience> push() {
        PushDTO<Audience> push = new PushDTO<>();
        push.setRequestId("0123456789abcdef0123456789ab0001");
        Settings settings = new Settings();
        settings.setTtl(60000);
        push.setSettings(settings);
        Audience audience = new Audience();
        audience.addCid("0123456789abcdef0123456789abcdef");
        push.setAudience(audience);
        PushMessage message = new PushMessage();
        message.setNotification(getuisOwn());
        push.setPushMessage(message);
        PushChannel channel = new PushChannel();
        channel.setAndroid(androidsMakers());
        channel.setIos(apple());
        push.setPushChannel(channel);
        return push;
    }

    private static GTNotification getuisOwn() {
        GTNotification shown = new GTNotification();
        shown.setTitle(TITLE);
        shown.setBody(TEXT);
        shown.setClickType("startapp");
        return shown;
    }

    private static AndroidDTO androidsMakers() {
        ThirdNotification shown = new ThirdNotification();
        shown.setTitle(TITLE);
        shown.setBody(TEXT);
        shown.setClickType("startapp");
        Ups ups = new Ups();
        ups.setNotification(shown);
        AndroidDTO android = new AndroidDTO();
        android.setUps(ups);
        return android;
    }

    private static IosDTO apple() {
        Alert alert = new Alert();
        alert.setTitle(TITLE);
        alert.setBody(TEXT);
        Aps aps = new Aps();
        aps.setAlert(alert);
        IosDTO ios = new IosDTO();
        ios.setType("notify");
        ios.setAps(aps);
        return ios;
    }
}
